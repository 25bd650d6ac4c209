"""The daemon's parts: configuration, selector, streams, regions."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from softnic.ipc import control
from softnicd import pump
from softnicd.__main__ import main
from softnicd.config import EXAMPLE, Config, ConfigError, load, parser
from softnicd.control_server import MAX_PER_PROCESS
from softnicd.daemon import Daemon
from softnicd.event_log import BURST, INTERVAL_S, EventLog
from softnicd.fast_turn import FastTurn
from softnicd.log import JournalHandler, JsonFormatter, NonBlockingStreamHandler
from softnicd.metrics import EXPORTED as EXPORTED_METRICS
from softnicd.metrics import drop_labels
from softnicd.metrics_server import MAX_CONNECTIONS as MAX_METRICS_CONNECTIONS
from softnicd.process_monitor import INTERVAL_S as POLL_INTERVAL_S
from softnicd.process_monitor import ProcessMonitor, state_of
from softnicd.regions import Regions
from softnicd.selector import AT_ONCE, NEVER, Selector
from softnicd.stall_watchdog import StallWatchdog
from softnicd.streams import Settings, Stream

__all__ = [
    "AT_ONCE",
    "BURST",
    "EXAMPLE",
    "EXPORTED_METRICS",
    "INTERVAL_S",
    "MAX_METRICS_CONNECTIONS",
    "MAX_PER_PROCESS",
    "NEVER",
    "POLL_INTERVAL_S",
    "Config",
    "ConfigError",
    "Daemon",
    "EventLog",
    "JournalHandler",
    "JsonFormatter",
    "NonBlockingStreamHandler",
    "ProcessMonitor",
    "Regions",
    "Selector",
    "Settings",
    "StallWatchdog",
    "Stream",
    "break_continuation",
    "cut_only",
    "drop_labels",
    "fast_turn_of",
    "forget_ended_streams",
    "load",
    "main",
    "on_wire",
    "parser",
    "poller_of",
    "reply_to",
    "restart_numbers",
    "segments_in_c",
    "state_of",
    "unreleased",
    "wire_of",
]


@contextmanager
def on_wire(make: Callable[..., object]) -> Iterator[None]:
    """Let daemons created within the block use the link that `make` returns as their wire."""
    with mock.patch.object(pump, "open_wire", make):
        yield


def wire_of(daemon: Daemon) -> object:
    """Return the link of a daemon to other NICs."""
    return daemon._wire


def fast_turn_of(daemon: Daemon) -> FastTurn | None:
    """Return the turns in C of a daemon, if it has them."""
    return daemon.fast_turn


def break_continuation(patch: pytest.MonkeyPatch) -> None:
    """Have every return from a turn in C fail."""

    def fail(_turn: FastTurn, reasons: int) -> float:
        raise RuntimeError(f"planted, after {reasons}")

    patch.setattr(FastTurn, "_continue", fail)


def cut_only(daemon: Daemon) -> None:
    """Have C cut segments, and Python send them through the link."""
    assert daemon.fast_turn is not None
    daemon.fast_turn._direct = False
    daemon.fast_turn.c.cuts_only = True


def segments_in_c(daemon: Daemon) -> int:
    """Return the segments that C sent and received since the daemon's counters were read last."""
    counts = daemon.fast_turn.c.counts if daemon.fast_turn else None
    return 0 if counts is None else int(counts.host_segments_sent + counts.host_segments_received)


def poller_of(daemon: Daemon) -> select.epoll:
    """Return what reports the events of a daemon's file descriptors."""
    return daemon._selector.epoll


def restart_numbers(daemon: Daemon) -> None:
    """Number streams and regions from 1 again."""
    daemon.streams.table._last = 0
    daemon.regions._last = 0


def reply_to(daemon: Daemon, packet: bytes, fd: int | None, owner: object) -> control.Reply:
    """Return what the daemon answers to a packet at its control socket."""
    return daemon.server._reply(memoryview(packet), fd, 0, owner)


def unreleased(daemon: Daemon) -> dict[str, int]:
    """Return the number of each kind of resource that a daemon still holds for programs."""
    held = {
        "streams": len(daemon.streams.table.streams),
        "streams by fd": len(daemon.streams.table.by_fd),
        "lingering streams": len(daemon.streams.table._lingering),
        "communicators": int(bool(daemon.offloaded)),
        "regions": len(daemon.regions._memory),
        "region bytes": daemon.regions.counters.region_bytes,
        "connections": len(daemon.host.tcp.connections),
        "ports with steps": sum(bool(stream.c.steps) for stream in daemon.streams.table.streams.values()),
    }
    return {kind: count for kind, count in held.items() if count}


def forget_ended_streams(daemon: Daemon) -> None:
    """Forget the statistics of streams that ended."""
    daemon.streams.table._closed.clear()
