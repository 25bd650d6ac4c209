"""What a turn of an established connection costs, hot and cold, and what two NICs cost over real sockets.

python -m benchmarks.fastpath [--turns 1000] [--rounds 9] [--count 3000] [--megabytes 256] [--rate RATE] [--json FILE]

Turns are those of benchmarks.tcp: TCP alone, in one process and virtual time. A NIC sleeps until something arrives, so
its turns begin with cold caches: "slept" is a turn after a sleep of 1 ms, "evicted" one after 8 MiB of other memory
were written. Hot turns count the quickest of all rounds, cold ones the median. Modes and states alternate.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import harness, tcp
from softnic.bench import latency, stream
from softnic.experiments.report import MeasurementReport, Progress, column, columns

MODES: Mapping[str, Mapping[str, str]] = {"fast path": {"SOFTNIC_FAST_PATH": "1"}, "Python": {"SOFTNIC_FAST_PATH": "0"}}
"""The ways in which segments are processed, each with its environment variables."""
PATTERNS = [each for each in tcp.PATTERNS if each.name in ("stream", "both ways", "question and answer")]
SLEEP_S = 0.001
EVICTED_BYTES = 8 << 20
COLD_SHARE = 5
"""A round has one cold turn for this many hot ones."""
CODEC = "bounded:10"


@dataclass(frozen=True)
class TurnRow:
    """Microseconds of CPU; None: that does not happen."""

    mode: str = column("mode")
    pattern: str = column("microseconds of CPU")
    state: str = column("caches")
    send_data: float | None = column("data sent", ".1f")
    take_data: float | None = column("taken", ".1f")
    send_ack: float | None = column("ACK sent", ".1f")
    take_ack: float | None = column("taken", ".1f")
    turn: float = column("a turn, both ends", ".1f")


@dataclass(frozen=True)
class SocketRow:
    mode: str = column("mode")
    p50_us: float = column("64 B there and back, p50 us", ".0f")
    of_relays: float = column("of two trivial relays", lambda value: f"{value:.2f} x")
    cpu_us: float | None = column("CPU us of both NICs", ".0f")
    plain_s_per_gb: float | None = column("stream, CPU s/GB of both NICs", ".2f")
    tagged_s_per_gb: float | None = column(f"{CODEC}", ".2f")


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, which processes started meanwhile have too."""
    before = dict(os.environ)
    os.environ |= variables
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def states() -> dict[str, tuple[Callable[[], object] | None, Callable[..., Any]]]:
    """Return what precedes a turn in each state, and how rounds are averaged."""
    memory = np.zeros(EVICTED_BYTES // 8)

    def evict() -> None:
        np.add(memory, 1, out=memory)

    return {"hot": (None, np.min), "slept": (lambda: time.sleep(SLEEP_S), np.median), "evicted": (evict, np.median)}


def turn_rows(turns: int, rounds: int, progress: Progress) -> list[TurnRow]:
    """Measure turns in every mode and state."""
    cases = [(pattern, mode, state) for pattern in PATTERNS for mode in MODES for state in states()]
    kinds = states()
    counts = {state: turns if before is None else -(-turns // COLD_SHARE) for state, (before, _) in kinds.items()}
    times: dict[tuple[str, str, str], list[tcp.Times]] = {}
    for number in range(rounds):
        progress(f"turns, round {number + 1} of {rounds}")
        for pattern, mode, state in cases:
            with environment(MODES[mode]):
                found = tcp.spent(pattern, counts[state], kinds[state][0])
            times.setdefault((pattern.name, mode, state), []).append(found)
    rows = []
    for pattern, mode, state in cases:
        cost = tcp.cost(pattern, counts[state], times[pattern.name, mode, state], kinds[state][1])
        parts = (cost.send_data, cost.take_data, cost.send_ack, cost.take_ack)
        rows.append(TurnRow(mode, pattern.name, state, *parts, cost.turn))
    return rows


def socket_row(mode: str, given: argparse.Namespace, progress: Progress) -> SocketRow:
    """Measure two daemons. Raises MeasurementError, ClusterError."""
    link = {"rate": given.rate} if given.rate else {}
    with environment(MODES[mode]):
        trips = latency.run(latency.LatencySettings(codecs=(), count=given.count), progress)
        settings = stream.StreamSettings(codecs=(CODEC,), megabytes=given.megabytes, link=link, idle_streams=1)
        streams = stream.run(settings, progress)
    trip = next(row for row in trips.rows if row.case == stream.UNTAGGED)
    cpu = {row.case: row.daemons_cpu_s_per_gb for row in streams.rows}
    return SocketRow(mode, trip.p50_us, trip.of_floor, trip.middle_cpu_us, cpu[stream.UNTAGGED], cpu[f"tagged {CODEC}"])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=1000, help="of virtual time, in each round; cold: a fifth (1000)")
    harness.add_rounds(parser, 9)
    parser.add_argument("--count", type=int, default=3000, help="round trips over sockets; 0: no sockets (3000)")
    parser.add_argument("--megabytes", type=int, default=256, help="of a stream over sockets (256)")
    parser.add_argument("--rate", default="", help="of the links of these streams (as fast as the machine)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Any]]:
    settings = {name: getattr(given, name) for name in ("turns", "rounds", "count", "megabytes", "rate")}
    turns = turn_rows(given.turns, given.rounds, progress)
    reports: list[MeasurementReport[Any]] = [
        MeasurementReport(
            "benchmarks.fastpath", "TCP alone, two ends in one process", columns(TurnRow), turns, settings
        )
    ]
    if given.count:
        title = f"Two NICs over sockets; links of streams: {given.rate or 'as fast as the machine'}"
        rows = [socket_row(mode, given, progress) for mode in MODES]
        reports.append(MeasurementReport("benchmarks.fastpath", title, columns(SocketRow), rows, settings))
    return reports


if __name__ == "__main__":
    sys.exit(harness.main("fastpath", __doc__, measured, add_options))
