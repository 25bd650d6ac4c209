"""What a seed makes of a world: its nodes and links, what runs on them, and what fails when.

A scenario is data. Drawing it uses up the seed: all other randomness in a world comes from seeds in the scenario.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from softnic.link.emulation_spec import EmulationSpec
from softnic.nic.nic import Mode
from softnic.tcp.config import TcpConfig
from tests.simulation.actions import Conversation, ConversationGenerator

_FAULT_S = (0.05, 1.0, 3.0, 3.0, 8.0, 90.0)
FaultKind = Literal["partition", "one-way partition", "flap", "degraded link", "crash", "freeze", "jump"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A host with its NIC."""

    mode: Mode
    equal_sizes: bool
    codec: str
    """Of the NIC's offload table."""
    plain: bool
    """It has no softnic NIC: it offers no codecs and decodes nothing."""
    clock_start: float
    clock_rate: float
    link: EmulationSpec
    stale_duplicates: float
    """Fraction of the batches it sends that arrive a second time many seconds later."""
    mtu: int
    port_bytes: int
    """Limit of the bytes that wait at its port."""
    config: TcpConfig
    backlog: int
    accept_pause_s: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What fails from `at` on, for `seconds`.

    partition: no frames pass between `nodes` and the others. one-way partition: none pass from the second of them to
    the first. flap: the first loses its link repeatedly. degraded link: its link has the properties of `link`.
    crash: its NIC dies, and another one starts after `seconds`. freeze: it stands still. jump: its clock jumps ahead by
    `seconds`.
    """

    at: float
    kind: FaultKind
    nodes: tuple[int, ...]
    seconds: float
    link: EmulationSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Ranks whose NICs execute collectives: rank r is on `nodes[r]`."""

    number: int
    at: float
    nodes: tuple[int, ...]
    calls: int
    gap_s: float
    """The most between two posts of a rank."""
    ends: Literal["together", "leaves", "cancels", "differs"]
    """Whether one rank leaves early, cancels, or calls another collective than the others."""
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All that happens in a world."""

    seed: int
    nodes: tuple[NodeSpec, ...]
    conversations: tuple[Conversation, ...]
    jobs: tuple[JobSpec, ...]
    faults: tuple[Fault, ...]
    horizon_s: float
    """By then all faults are over."""

    @property
    def calm(self) -> bool:
        """Whether nothing happens that could end a connection."""
        return not self.faults

    def describe(self) -> list[str]:
        """Describe the world, one line for each part."""
        lines = [f"seed {self.seed}: {self.horizon_s:.1f} s {'without' if self.calm else 'with'} faults"]
        for index, each in enumerate(self.nodes):
            kind = "a plain host" if each.plain else f"{each.mode} {each.codec}"
            lines.append(
                f"node{index}: {kind}, mtu {each.mtu}, buffers {each.config.send_buffer}/{each.config.receive_buffer}, "
                f"clock x{each.clock_rate:.4f}, {each.link}"
            )
        for job in self.jobs:
            lines.append(f"{job.at:.3f} s: job {job.number} on {job.nodes}: {job.calls} calls, {job.ends}")
        for fault in self.faults:
            lines.append(f"{fault.at:.3f} s: {fault.kind} of {fault.nodes} for {fault.seconds:.3f} s")
        return lines


def draw(seed: int) -> Scenario:
    """Draw the world of a seed."""
    rng = random.Random(seed)
    calm = rng.random() < 0.35
    count = rng.choice((2, 2, 3, 3, 4, 5))
    horizon = rng.choice((2.0, 8.0, 20.0))
    job_count = rng.choice((0, 0, 1, 2))
    nodes = tuple(draw_node(rng, calm, bool(job_count)) for _ in range(count))
    generator = ConversationGenerator(rng)
    conversations = []
    for number in range(rng.choice((1, 3, 6, 12))):
        client, server = rng.randrange(count), rng.randrange(count)  # now and then the same one
        at = rng.random() * horizon * rng.choice((0.05, 1.0))
        may_end_early = not calm or rng.random() < 0.5
        conversations.append(generator.draw(number, at, client, server, may_end_early=may_end_early))
    jobs = tuple(draw_job(rng, nodes, horizon, calm, number) for number in range(job_count))
    faults = () if calm else tuple(draw_fault(rng, count, horizon) for _ in range(rng.choice((1, 2, 4, 8))))
    return Scenario(
        seed=seed,
        nodes=nodes,
        conversations=tuple(conversations),
        jobs=tuple(job for job in jobs if job is not None),
        faults=faults,
        horizon_s=max([horizon, *(fault.at + fault.seconds for fault in faults if fault.kind != "jump")]),
    )


def draw_node(rng: random.Random, calm: bool = False, jobs: bool = False) -> NodeSpec:
    """Draw a node. Links are better in calm worlds, and best in calm worlds with jobs."""
    return NodeSpec(
        mode=rng.choice(("fill", "fill", "packet")),
        equal_sizes=rng.random() < 0.5,
        codec=rng.choice(("bounded:10", "inceptionn:10", "truncate:16", "raw")),
        plain=rng.random() < 0.1,
        clock_start=rng.choice((0.0, rng.random() * 1e6)),
        clock_rate=rng.choice((1.0, 1.0, rng.uniform(0.9, 1.1))),
        link=_link(rng, calm, quick=calm and jobs),
        stale_duplicates=rng.choice((0.0, 0.0, 0.02)),
        mtu=rng.choice((1500, 1500, 1500, 576, 9000)),
        port_bytes=rng.choice((1 << 18, 1 << 22)),
        config=_config(rng),
        backlog=rng.choice((0, 2, 128)),
        accept_pause_s=rng.choice((0.0, 0.0, 0.5)),
        seed=rng.getrandbits(64),
    )


def _link(rng: random.Random, calm: bool, quick: bool) -> EmulationSpec:
    """Draw a bad link, on which nothing times out in a calm world. Jobs time out after three seconds, so their links
    are `quick`."""
    rate = rng.choice((None, 1e7, 1e8, 1e9) if quick else (None, 1e6, 1e7, 1e9))
    delay = rng.choice((0.0, 50e-6, 1e-3, 5e-3) if quick else (0.0, 50e-6, 1e-3, 20e-3, 300e-3))
    bad = rng.random() < 0.7
    loss = rng.choice((0.0, 0.005, 0.02 if calm else 0.2)) if bad else 0.0
    return EmulationSpec(
        rate_bps=rate,
        delay_s=delay,
        jitter_s=delay * rng.random() if bad else 0.0,
        loss=loss,
        duplicate=rng.choice((0.0, 0.02)) if bad else 0.0,
        reorder=rng.choice((0.0, 0.05)) if bad else 0.0,
        corrupt=rng.choice((0.0, 0.005)) if bad else 0.0,
        coalesce_s=rng.choice((0.0, 100e-6)),
    )


def _config(rng: random.Random) -> TcpConfig:
    """Draw TCP's settings. Small buffers exercise waiting for space."""
    if rng.random() < 0.5:
        return TcpConfig()
    return TcpConfig(
        congestion=rng.choice(("bbr", "cubic", "reno")),  # "auto" is the default
        send_buffer=rng.choice((4096, 65536, 1 << 20)),
        receive_buffer=rng.choice((4096, 65536, 1 << 20)),
        super_segment=rng.choice((4096, 1 << 16, 1 << 20)),
        min_rto_s=rng.choice((0.2, 1.0)),
        ack_delay_s=rng.choice((0.01, 0.2)),
        time_wait_s=rng.choice((1.0, 60.0)),
    )


def draw_fault(rng: random.Random, count: int, horizon: float) -> Fault:
    """Draw a fault among `count` nodes before the horizon."""
    kinds: tuple[FaultKind, ...] = (
        "partition", "one-way partition", "flap", "degraded link", "crash", "crash", "freeze", "jump",
    )  # fmt: skip
    kind = rng.choice(kinds)
    nodes = tuple(rng.sample(range(count), rng.randrange(1, count) if kind == "partition" else 2))
    return Fault(
        at=rng.random() * horizon,
        kind=kind,
        nodes=nodes,
        seconds=(
            30 * 86400.0 if kind == "jump" and rng.random() < 0.1 else rng.choice(_FAULT_S) * (0.5 + rng.random())
        ),
        link=_link(rng, False, False) if kind == "degraded link" else None,
    )


def draw_job(
    rng: random.Random, nodes: tuple[NodeSpec, ...], horizon: float, calm: bool, number: int
) -> JobSpec | None:
    """Draw ranks on nodes that have a NIC; None if there are too few."""
    able = [index for index, node in enumerate(nodes) if not node.plain]
    job = JobSpec(
        number=number,
        at=rng.random() * horizon * 0.5,
        nodes=tuple(rng.sample(able, rng.randrange(2, len(able) + 1))) if len(able) > 1 else (),
        calls=rng.choice((1, 3, 10)),
        gap_s=rng.choice((0.0, 0.01, 1.0)),
        ends="together" if calm else rng.choice(("together", "together", "leaves", "cancels", "differs")),
        seed=rng.getrandbits(64),
    )
    return job if job.nodes else None
