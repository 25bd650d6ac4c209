"""The choice of a compression in the first steps: by the lengths of steps, of a clock that the test turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import softnic.torch
from softnic.torch import trials
from softnic.torch.backend import SoftnicGroup
from softnic.torch.trials import ROUNDS, SETTLING, UNCOMPRESSED, Trials, Way, ways

CPU_WAYS = ways(on_gpu=False, floor_bytes=0)
GPU_WAYS = ways(on_gpu=True, floor_bytes=0)


class Rank:
    """A rank whose steps take as long as `step_ms` says for their way, and a share of them in the exchange."""

    def __init__(self, choices: Sequence[Way], step_ms: Sequence[float], share: float = 0.5) -> None:
        self.told: list[str] = []
        self.now = 100.0
        self.share = share
        self._choices, self._step_ms = choices, step_ms
        self.trials = Trials(
            choices, lambda: self.share * self.now, lambda figures: figures, self.told.append, self.clock
        )

    def clock(self) -> float:
        return self.now

    def step(self, more_ms: float = 0.0) -> Way:
        way = self.trials.next_step()
        self.now += (self._step_ms[self._choices.index(way)] + more_ms) / 1e3
        return way


def test_the_shortest_way_is_chosen_after_trials_by_turns() -> None:
    rank = Rank(GPU_WAYS, [100, 40, 35, 90])
    taken = [rank.step() for _ in range(SETTLING + 4 * ROUNDS)]
    assert taken == [UNCOMPRESSED] * SETTLING + GPU_WAYS * ROUNDS
    assert not rank.told
    assert [rank.step() for _ in range(3)] == [GPU_WAYS[2]] * 3
    assert rank.told == [
        "gradients are compressed by rht:4 on the GPU, in pieces of 4 MiB: a step takes 35 ms (not compressed: 100, "
        "compressed by rht:4 on the GPU, in pieces of 1 MiB: 40, compressed by rht:4 on the CPU: 90)"
    ]


@pytest.mark.parametrize(("step_ms", "chosen"), [((100, 96), 0), ((100, 94), 1), ((100, 200), 0)])
def test_exact_is_left_only_for_a_gain(step_ms: Sequence[float], chosen: int) -> None:
    rank = Rank(CPU_WAYS, step_ms)
    for _ in range(SETTLING + 2 * ROUNDS):
        rank.step()
    assert rank.step() is CPU_WAYS[chosen]


def test_the_first_round_and_single_slow_steps_do_not_count() -> None:
    rank = Rank(CPU_WAYS, [100, 60])
    for number in range(SETTLING + 2 * ROUNDS):
        is_first_round, is_slow = 0 <= number - SETTLING < 2, number == SETTLING + 5
        rank.step(5000 if is_first_round or is_slow else 0)
    assert rank.step() is CPU_WAYS[1]


def test_nothing_is_tried_where_the_exchange_takes_no_time() -> None:
    rank = Rank(CPU_WAYS, [100, 10], share=0.02)
    assert [rank.step() for _ in range(20)] == [UNCOMPRESSED] * 20
    assert rank.told == ["gradients are not compressed: their exchange takes 2% of a step"]


def test_ranks_agree_on_the_longest_medians() -> None:
    """A rank for which compression pays gives way to one for which it does not."""
    rank = Rank(CPU_WAYS, [100, 50])
    rank.trials._longest = lambda figures: figures if len(figures) == 1 else [max(each, 0.1) for each in figures]
    for _ in range(SETTLING + 2 * ROUNDS):
        rank.step()
    assert rank.step() is UNCOMPRESSED


def test_a_model_without_a_codec_is_tried(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]  # public, but not in its __all__
    dist.init_process_group("softnic", store=store, rank=0, world_size=1)
    try:
        seen: list[str | None] = []
        sum_by_codec = SoftnicGroup.sum_by_codec

        def summed(group: SoftnicGroup, tensors: dict[str | None, list[torch.Tensor]], *more: object) -> object:
            seen.extend(tensors)
            return sum_by_codec(group, tensors, *more)  # type: ignore[arg-type]

        monkeypatch.setattr(SoftnicGroup, "sum_by_codec", summed)
        monkeypatch.setattr(trials, "LEAST_SHARE", 0.0)
        model: Any = DistributedDataParallel(torch.nn.Linear(64, 64, bias=False))
        softnic.torch.compress(model, warmup=1)
        for _ in range(1 + SETTLING + 2 * ROUNDS + 1):
            model(torch.ones(2, 64)).sum().backward()
        assert seen[: 1 + SETTLING] == [None] * (1 + SETTLING)
        assert seen[1 + SETTLING : -1] == [None, "rht:4"] * ROUNDS
        assert capsys.readouterr().err.startswith("softnic: gradients are ")
        seen.clear()
        softnic.torch.compress(model, None)
        model(torch.ones(2, 64)).sum().backward()
        assert seen == [None]
    finally:
        dist.destroy_process_group()
