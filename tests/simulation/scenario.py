"""What a seed makes of a world: its machines and links, what runs on them, what goes wrong when.

A plan is data. Drawing one uses up the seed: whatever else is random in a world comes from numbers that stand here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from tests.facades.link import EmulationSpec
from tests.facades.nic import Mode
from tests.facades.tcp import ALGORITHMS, TcpConfig
from tests.simulation.actions import Author, Conversation

_FAULT_S = (0.05, 1.0, 3.0, 3.0, 8.0, 90.0)
FaultKind = Literal["partition", "deaf", "flap", "storm", "crash", "freeze", "jump"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A host with its NIC."""

    mode: Mode
    equal_sizes: bool
    codec: str
    """Of the NIC's table."""
    plain: bool
    """It has no softnic NIC: does not offer codecs, and undoes none."""
    clock_start: float
    clock_rate: float
    link: EmulationSpec
    ghosts: float
    """Of the batches that leave it, the share that comes again many seconds later."""
    mtu: int
    port_bytes: int
    """What may wait at its port while it does not look."""
    config: TcpConfig
    backlog: int
    accept_pause_s: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong, from `at` on and for so long.

    partition: the `machines` and the others do not hear each other. deaf: the first of them does not hear the second.
    flap: the first loses its link again and again. storm: its link is as `link` says. crash: its NIC dies, and another
    one starts after `seconds`. freeze: it stands still. jump: its clock goes ahead by `seconds`.
    """

    at: float
    kind: FaultKind
    machines: tuple[int, ...]
    seconds: float
    link: EmulationSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Ranks that have their NICs execute collectives: rank r on `machines[r]`."""

    number: int
    at: float
    machines: tuple[int, ...]
    calls: int
    gap_s: float
    """Between two posts of a rank, at most."""
    ends: Literal["together", "leaves", "cancels", "differs"]
    """How: one rank may leave early, cancel, or call something else."""
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    machines: tuple[Machine, ...]
    conversations: tuple[Conversation, ...]
    teams: tuple[Team, ...]
    faults: tuple[Fault, ...]
    horizon_s: float
    """By then all faults are over."""

    @property
    def calm(self) -> bool:
        """Nothing happens that could end a connection."""
        return not self.faults

    def describe(self) -> list[str]:
        """In words, a line each."""
        lines = [f"seed {self.seed}: {self.horizon_s:.1f} s of {'nothing bad' if self.calm else 'trouble'}"]
        for index, each in enumerate(self.machines):
            kind = "a plain host" if each.plain else f"{each.mode} {each.codec}"
            lines.append(
                f"node{index}: {kind}, mtu {each.mtu}, buffers {each.config.send_buffer}/{each.config.receive_buffer}, "
                f"clock x{each.clock_rate:.4f}, {each.link}"
            )
        for team in self.teams:
            lines.append(f"{team.at:.3f} s: team {team.number} of {team.machines}: {team.calls} calls, {team.ends}")
        for fault in self.faults:
            lines.append(f"{fault.at:.3f} s: {fault.kind} of {fault.machines} for {fault.seconds:.3f} s")
        return lines


def draw(seed: int) -> Plan:
    """The world of a seed."""
    rng = random.Random(seed)
    calm = rng.random() < 0.35
    count = rng.choice((2, 2, 3, 3, 4, 5))
    horizon = rng.choice((2.0, 8.0, 20.0))
    teams_wanted = rng.choice((0, 0, 1, 2))
    machines = tuple(draw_machine(rng, calm, bool(teams_wanted)) for _ in range(count))
    author = Author(rng)
    conversations = []
    for number in range(rng.choice((1, 3, 6, 12))):
        client, server = rng.randrange(count), rng.randrange(count)  # now and then the same one
        at = rng.random() * horizon * rng.choice((0.05, 1.0))
        conversations.append(author.conversation(number, at, client, server, quits=not calm or rng.random() < 0.5))
    teams = tuple(draw_team(rng, machines, horizon, calm, number) for number in range(teams_wanted))
    faults = () if calm else tuple(draw_fault(rng, count, horizon) for _ in range(rng.choice((1, 2, 4, 8))))
    return Plan(
        seed=seed,
        machines=machines,
        conversations=tuple(conversations),
        teams=tuple(team for team in teams if team is not None),
        faults=faults,
        horizon_s=max([horizon, *(fault.at + fault.seconds for fault in faults if fault.kind != "jump")]),
    )


def draw_machine(rng: random.Random, calm: bool = False, teams: bool = False) -> Machine:
    """One of any kind. Of a calm world's, and of those with teams, links are not so bad."""
    return Machine(
        mode=rng.choice(("fill", "fill", "packet")),
        equal_sizes=rng.random() < 0.5,
        codec=rng.choice(("bounded:10", "inceptionn:10", "truncate:16", "raw")),
        plain=rng.random() < 0.1,
        clock_start=rng.choice((0.0, rng.random() * 1e6)),
        clock_rate=rng.choice((1.0, 1.0, rng.uniform(0.9, 1.1))),
        link=_link(rng, calm, quick=calm and teams),
        ghosts=rng.choice((0.0, 0.0, 0.02)),
        mtu=rng.choice((1500, 1500, 1500, 576, 9000)),
        port_bytes=rng.choice((1 << 18, 1 << 22)),
        config=_config(rng),
        backlog=rng.choice((0, 2, 128)),
        accept_pause_s=rng.choice((0.0, 0.0, 0.5)),
        seed=rng.getrandbits(64),
    )


def _link(rng: random.Random, calm: bool, quick: bool) -> EmulationSpec:
    """Bad, but so that in a calm world nothing gives up on it: teams do after three seconds, so theirs are `quick`."""
    rate = rng.choice((None, 1e7, 1e8, 1e9) if quick else (None, 1e6, 1e7, 1e9))
    delay = rng.choice((0.0, 50e-6, 1e-3, 5e-3) if quick else (0.0, 50e-6, 1e-3, 20e-3, 100e-3))
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
    """Buffers from tiny to large: what fills up shows how one waits."""
    if rng.random() < 0.5:
        return TcpConfig()
    return TcpConfig(
        congestion=rng.choice(sorted(ALGORITHMS)),
        send_buffer=rng.choice((4096, 65536, 1 << 20)),
        receive_buffer=rng.choice((4096, 65536, 1 << 20)),
        super_segment=rng.choice((4096, 1 << 16, 1 << 20)),
        min_rto_s=rng.choice((0.2, 1.0)),
        ack_delay_s=rng.choice((0.01, 0.2)),
        time_wait_s=rng.choice((1.0, 60.0)),
    )


def draw_fault(rng: random.Random, count: int, horizon: float) -> Fault:
    """Something that goes wrong among so many machines before the horizon."""
    kinds: tuple[FaultKind, ...] = ("partition", "deaf", "flap", "storm", "crash", "crash", "freeze", "jump")
    kind = rng.choice(kinds)
    machines = tuple(rng.sample(range(count), rng.randrange(1, count) if kind == "partition" else 2))
    return Fault(
        at=rng.random() * horizon,
        kind=kind,
        machines=machines,
        seconds=(
            30 * 86400.0 if kind == "jump" and rng.random() < 0.1 else rng.choice(_FAULT_S) * (0.5 + rng.random())
        ),
        link=_link(rng, False, False) if kind == "storm" else None,
    )


def draw_team(
    rng: random.Random, machines: tuple[Machine, ...], horizon: float, calm: bool, number: int
) -> Team | None:
    """Ranks on machines that have a NIC; None where these are too few."""
    able = [index for index, machine in enumerate(machines) if not machine.plain]
    team = Team(
        number=number,
        at=rng.random() * horizon * 0.5,
        machines=tuple(rng.sample(able, rng.randrange(2, len(able) + 1))) if len(able) > 1 else (),
        calls=rng.choice((1, 3, 10)),
        gap_s=rng.choice((0.0, 0.01, 1.0)),
        ends="together" if calm else rng.choice(("together", "together", "leaves", "cancels", "differs")),
        seed=rng.getrandbits(64),
    )
    return team if team.machines else None
