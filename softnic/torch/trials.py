"""Chooses how a training's gradients are exchanged, by trying it in the first steps.

1. SETTLING steps are exact. If the exchange takes less than LEAST_SHARE of them, nothing is gained by fewer bytes, and
   the choice is made.
2. ROUNDS times each way is taken for a step, by turns, so that what changes on the machine meets all alike. The first
   round does not count: kernels are compiled in it.
3. The way with the shortest median step is chosen, but an exact exchange is left only for one that saves LEAST_GAIN.

All ranks choose alike: what decides is the longest of their medians. A step is what the user waits for: computation,
whatever of the exchange is not hidden behind it, and what codecs take from either.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import EXACT, Compression, DeviceUse
from softnic.torch.devices import on_device

SETTLING = 2
ROUNDS = 4
LEAST_SHARE = 0.05
LEAST_GAIN = 0.05
_CODEC = "rht:4"
"""Its error does not depend on the magnitudes and the tails of gradients (docs/codecs.md)."""


@dataclass(frozen=True)
class Way:
    """One way to exchange gradients."""

    text: str
    compression: Compression


UNCOMPRESSED = Way("not compressed", EXACT)


def ways(on_gpu: bool, floor_bytes: int, weights: str | None = None) -> list[Way]:
    """Return the ways for gradients on a GPU or on the host. `weights`: a lossless codec of a sharded model's."""

    def compressed(text: str, use: DeviceUse) -> Way:
        return Way(f"compressed by {_CODEC} {text}", Compression(_CODEC, floor_bytes, weights, use))

    by_nic = compressed("on the CPU", DeviceUse(encodes=False))
    if not on_gpu:
        return [UNCOMPRESSED, by_nic]
    sizes = [(1 << 20, "1 MiB"), (4 << 20, "4 MiB")]
    by_gpu = [compressed(f"on the GPU, in pieces of {text}", DeviceUse(True, size)) for size, text in sizes]
    return [UNCOMPRESSED, *by_gpu, by_nic]


def trials_of(group: SoftnicGroup, model: torch.nn.Module, floor_bytes: int, weights: str | None = None) -> Trials:
    """Return the trials of a model whose gradients a group sums."""
    on_gpu = any(on_device(parameter) for parameter in model.parameters())

    def longest(figures: Sequence[float]) -> Sequence[float]:
        agreed = torch.tensor(figures, dtype=torch.float64)
        group.allreduce([agreed], op=dist.ReduceOp.MAX).wait()
        return [float(each) for each in agreed]

    def tell(text: str) -> None:
        if group.rank() == 0:
            print(f"softnic: {text}", file=sys.stderr, flush=True)

    return Trials(ways(on_gpu, floor_bytes, weights), lambda: group.stats().exchange_s, longest, tell)


class Trials:
    """The trials of one model. `longest` returns the greatest of each of several figures of all ranks."""

    def __init__(
        self,
        choices: Sequence[Way],
        exchange_s: Callable[[], float],
        longest: Callable[[Sequence[float]], Sequence[float]],
        tell: Callable[[str], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`exchange_s`: for how long the exchange has taken so far, in seconds."""
        self._choices = choices
        self._exchange_s, self._longest, self._tell, self._clock = exchange_s, longest, tell, clock
        self._way = choices[0]
        self._chosen = False
        self._begins: list[float] = []
        """When each step began."""
        self._exchanged: float = 0.0

    def next_step(self) -> Way:
        """Return the way of the step that begins now."""
        if self._chosen:
            return self._way
        self._begins.append(self._clock())
        step = len(self._begins) - 1
        tried = step - SETTLING
        if step == 1:
            self._exchanged = self._exchange_s()
        elif step == SETTLING:
            self._settle()
        elif tried == ROUNDS * len(self._choices):
            self._choose()
        if not self._chosen:
            self._way = self._choices[max(0, tried) % len(self._choices)]
        return self._way

    def _settle(self) -> None:
        """Look whether the exchange takes long enough for trials."""
        share = (self._exchange_s() - self._exchanged) / (self._begins[-1] - self._begins[-2])
        (share,) = self._longest([share])
        if share < LEAST_SHARE:
            self._chosen = True
            self._tell(f"gradients are {UNCOMPRESSED.text}: their exchange takes {share:.0%} of a step")

    def _choose(self) -> None:
        count = len(self._choices)
        lengths = [
            end - begin for begin, end in zip(self._begins[SETTLING:], self._begins[SETTLING + 1 :], strict=False)
        ]
        medians = self._longest([statistics.median(lengths[index::count][1:]) for index in range(count)])
        by_length = sorted(zip(medians, range(count), strict=True))
        best_s, best = by_length[0]
        if best_s > (1 - LEAST_GAIN) * medians[0]:
            best = 0
        self._chosen, self._way = True, self._choices[best]
        others = ", ".join(
            f"{way.text}: {length * 1e3:.0f}"
            for way, length in zip(self._choices, medians, strict=True)
            if way is not self._way
        )
        self._tell(f"gradients are {self._way.text}: a step takes {medians[best] * 1e3:.0f} ms ({others})")
