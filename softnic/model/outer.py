"""The share of time spent computing with outer steps: the formula of DiLoCo, beside a cluster in virtual time.

DiLoCo (arXiv 2311.08105): ranks compute H inner steps of c seconds, and then wait for one exchange of pseudo-gradients,
T seconds. Streaming DiLoCo (arXiv 2501.18512): the model is divided into F fragments, which start in turn, H/F steps
apart; the exchange of a fragment, T_f seconds, overlaps with `delay` inner steps, and only the rest is waited for.

    share = H c / (H c + F max(0, T_f - delay c))        DiLoCo: F = 1, delay = 0, T_f = T

It holds for a delay of less than H/F steps, so that one exchange is under way at a time. T of an all-reduce is the
smart NIC's T_AR (smartnic.py). A method whose ranks send messages to all others takes N - 1 of them on each link.
In the cluster, inner steps take their time and nothing else, and exchanges pass TCP, NIC and engine as real floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from softnic.model import check, programs
from softnic.model.layers import Layer
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Condition, Floats, Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec

PARAMETERS = 100_000_000
STEP_S = 2.5
"""Of a model with 100 million parameters: 6 FLOP for each parameter and token, and 2^19 tokens of a rank in a step,
which are DiLoCo's 512 sequences of 1,024, at 1.26e14 FLOP/s, 40 % of what an A100 has in bfloat16."""
ASKED = 0.95
SPARSELOCO_BITS = 0.192
"""Of a message of `sparseloco` with its defaults, for each float."""
_MESSAGE = "message:"


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterCase:
    """Outer steps of some ranks. Raises ValueError for impossible ones."""

    exchange: str = ""
    """A codec of the NICs' all-reduce; empty: exact; `message:B`: messages of B bits for a parameter, sent to all."""
    nodes: int = 4
    parameters: int = PARAMETERS
    rate_bps: float = 10e6
    delay_s: float = 10e-3
    step_s: float = STEP_S
    """Of an inner step."""
    every: int = 100
    """Inner steps between two outer steps of a fragment: H."""
    fragments: int = 1
    delay: int = 0
    """Inner steps that an exchange overlaps with."""

    def __post_init__(self) -> None:
        if self.nodes < 2 or self.parameters < self.fragments or not self.step_s > 0 or not self.rate_bps > 0:
            raise ValueError(
                "outer steps take 2 nodes, a parameter of each fragment, a step and a rate above 0, at least"
            )
        if self.fragments < 1 or self.every % self.fragments or not 0 <= self.delay < self.every // self.fragments:
            raise ValueError(
                f"{self.fragments} fragments every {self.every} steps with a delay of {self.delay}: fragments divide "
                f"the steps, and a delay is less than the steps between two of them"
            )

    @property
    def way(self) -> str:
        """What people call it."""
        name = "sparseloco" if self.message_bits else self.exchange or "exact"
        return f"{name}, {self.fragments} fragments, {self.delay} steps" if self.fragments > 1 else name

    @property
    def message_bits(self) -> float:
        """Bits of a parameter in messages that are sent to all; 0: an all-reduce."""
        return float(self.exchange.removeprefix(_MESSAGE)) if self.exchange.startswith(_MESSAGE) else 0.0

    @property
    def fragment(self) -> int:
        """Parameters of a fragment, in whole coding blocks."""
        return math.ceil(self.parameters / self.fragments / programs.BLOCK_FLOATS) * programs.BLOCK_FLOATS

    @property
    def message_bytes(self) -> int:
        return math.ceil(self.fragment * self.message_bits / 8)

    @property
    def computing_s(self) -> float:
        """Of the inner steps between two outer ones."""
        return self.every * self.step_s


def exchange_s(case: OuterCase) -> float:
    """Return the seconds in which one fragment is exchanged, T_f, by the formulas."""
    exchange = check.CheckCase(
        strategy="nic+c" if case.exchange and not case.message_bits else "nic",
        nodes=case.nodes,
        network=(Layer("fragment", case.fragment, 0.0, 0.0),),
        name="",
        rate_bps=case.rate_bps,
        delay_s=case.delay_s,
        codec=case.exchange,
    )
    if not case.message_bits:
        return check.predict(exchange)
    machine = check.machine_of(exchange)
    return (case.nodes - 1) * 8 * case.message_bytes / (machine.alpha * case.rate_bps) + case.delay_s


def computing_share(case: OuterCase) -> float:
    """Return the share of time spent computing, by the formula above."""
    waiting_s = case.fragments * max(0.0, exchange_s(case) - case.delay * case.step_s)
    return case.computing_s / (case.computing_s + waiting_s)


def least_step_s(case: OuterCase, share: float = ASKED) -> float:
    """Return the shortest inner step with which a share is reached, by the formula. `step_s` of the case is unused.

    Raises ValueError for a share that is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"a share is above 0 and below 1, not {share}")
    overlapped = share * case.fragments * case.delay
    return share * case.fragments * exchange_s(case) / (case.every * (1 - share) + overlapped)


def simulated_s(case: OuterCase) -> float:
    """Return the virtual seconds of the second `every` steps, when exchanges of the first are under way.

    Raises
    ------
    ConnectionError, Stalled
        The cluster fails.
    """
    cluster = SimCluster(ClusterSpec(nodes=case.nodes, rate_bps=case.rate_bps, delay_s=case.delay_s, connect="all"))
    ends: list[list[float]] = [[] for _ in cluster.ranks]

    def program(rank: SimRank) -> Program:
        fragments = [_Fragment(case, rank, number) for number in range(case.fragments)]
        for _ in range(2):
            yield from _steps(case, rank, fragments)
            ends[rank.index].append(rank.now)

    cluster.run(program, limit_s=math.inf)
    return max(second - first for first, second in ends)


def _steps(case: OuterCase, rank: SimRank, fragments: Sequence[_Fragment]) -> Program:
    """Run the inner steps between two outer ones of a fragment, as softnic.gradients.outer.StreamingOuter does."""
    for step in range(1, case.every + 1):
        yield rank.compute(case.step_s)
        for number, fragment in enumerate(fragments):
            phase = (step - number * case.every // len(fragments)) % case.every
            if phase == 0:
                fragment.start()
            if phase == case.delay:
                yield from fragment.pending
                fragment.pending = ()


class _Fragment:
    """The exchange of a fragment's pseudo-gradients, which are normally distributed."""

    def __init__(self, case: OuterCase, rank: SimRank, number: int) -> None:
        self._case, self._rank = case, rank
        size = 0 if case.message_bits else case.fragment
        self._vector: Floats = np.random.default_rng([rank.index, number]).standard_normal(size, np.float32)
        self.pending: Sequence[Condition] = ()
        """The end of the exchange that is under way."""

    def start(self) -> None:
        rank, case = self._rank, self._case
        if not case.message_bits:
            self.pending = [rank.post(self._vector, case.exchange)]
            return
        others = [(rank.index + step) % rank.size for step in range(1, rank.size)]
        message = memoryview(bytes(case.message_bytes))
        for other in others:
            rank.send(other, message)
        self.pending = [rank.receive(other, memoryview(bytearray(case.message_bytes))) for other in others]


@dataclass(frozen=True, slots=True)
class OuterResult:
    """Shares of time spent computing, by the formula and in virtual time."""

    case: OuterCase
    predicted: float
    simulated: float
    least_step_s: float
    """With which `ASKED` is reached, by the formula; of the whole model."""


def check_outer(case: OuterCase, scale: int = 1) -> OuterResult:
    """Predict a case, and simulate it with `scale` times fewer parameters and shorter steps, which leaves the share as
    it is but for latencies, of which it has as many."""
    small = replace(case, parameters=case.parameters // scale, step_s=case.step_s / scale)
    return OuterResult(case, computing_share(case), small.computing_s / simulated_s(small), least_step_s(case))


def cases(settings: OuterCase) -> list[OuterCase]:
    """Return the ways of docs/gradients.md with the settings of a case: DiLoCo, and Streaming DiLoCo in 4 fragments
    whose exchange overlaps with a twentieth or a fifth of the steps. Raises ValueError if these do not fit."""
    plain = replace(settings, fragments=1, delay=0)
    made = [replace(plain, exchange=each) for each in ("", "rht:4", "rht:3", f"{_MESSAGE}{SPARSELOCO_BITS}")]
    return made + [
        replace(plain, exchange=codec, fragments=4, delay=settings.every // share)
        for codec in ("rht:4", "rht:3")
        for share in (20, 5)
    ]
