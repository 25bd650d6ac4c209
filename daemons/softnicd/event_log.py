"""Event log: what happened to a NIC, shown by `softnic stat` and written to the log.

It records what an operator may want to know afterwards: starts, lost peers and applications, exhausted resources,
repairs. Its size is bounded. An event that repeats increments a count instead of displacing others. Events that peers
or applications can cause at will (each about another address, process or stream) have a topic: BURST lines in
INTERVAL_S, then one line with the number of those omitted. Counters are exact.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from softnic.ipc.control import NicEvent
from softnic.packet import ipv4
from softnic.tcp.liveness import PeerFound, PeerLost, relayed
from softnic.terminal import printable

MAX_EVENTS = 100
"""As many as fit into a NicStats beside its streams."""
MAX_TEXT = 400
BURST = 8
"""Lines of one topic that are written in INTERVAL_S."""
INTERVAL_S = 60.0

log = logging.getLogger("softnicd")


@dataclass(slots=True)
class FaultCounters:
    peers_lost: int = 0
    """Nodes that did not answer, and whose connections were ended."""
    applications_lost: int = 0
    """Applications that were stopped for too long, and whose connections were ended."""
    shortages: int = 0
    """Operations that failed for lack of memory or file descriptors."""
    failures: int = 0
    """Internal errors, each with a traceback in the log."""


@dataclass(slots=True)
class _Topic:
    """Lines of one topic since its interval began."""

    began: float
    written: int = 0
    omitted: int = 0
    last_omitted: str = ""


class EventLog:
    """The events of one NIC, from any of its threads. `clock` returns seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.counters = FaultCounters()
        self._clock = clock
        self._events: deque[NicEvent] = deque(maxlen=MAX_EVENTS)
        self._topics: dict[str, _Topic] = {}
        self._lock = threading.RLock()

    @property
    def events(self) -> list[NicEvent]:
        """The latest events, oldest first."""
        return list(self._events)

    def record(self, text: str, level: int = logging.WARNING, topic: str = "") -> None:
        """Records an event. The same text as the last event's increments that event's count."""
        text = printable(text[:MAX_TEXT])
        with self._lock:
            last = self._events[-1] if self._events else None
            is_new = last is None or last.text != text
            if last is None or is_new:
                self._events.append(NicEvent(self._clock(), text))
            else:
                self._events[-1] = NicEvent(self._clock(), text, last.count + 1)
        if is_new:
            log.log(level, "%s", text, extra={"topic": topic})

    def record_limited(self, topic: str, text: str, level: int = logging.WARNING) -> None:
        """Records an event unless its topic (a plural: `peers lost`) has had BURST lines in this interval."""
        with self._lock:
            self.flush_topics()
            state = self._topics.setdefault(topic, _Topic(self._clock()))
            if state.written < BURST:
                state.written += 1
                self.record(text, level, topic)
            else:
                state.omitted += 1
                state.last_omitted = text

    def flush_topics(self) -> None:
        """Records the number of omitted lines for each topic whose interval is over. Call it periodically."""
        now = self._clock()
        with self._lock:
            over = [each for each, state in self._topics.items() if not 0 <= now - state.began < INTERVAL_S]
            for topic in over:
                state = self._topics.pop(topic)
                if state.omitted:
                    elapsed_s = now - state.began
                    text = f"{topic}: {state.omitted} more in {elapsed_s:.0f} s, the last: {state.last_omitted}"
                    self.record(text, topic=topic)

    def started(self, ip: str, took_over: bool) -> None:
        """Records the start. `took_over`: an earlier NIC left its control socket behind."""
        before = ", replacing a NIC that did not exit cleanly" if took_over else ""
        self.record(f"started as {ip}, process {os.getpid()}{before}", logging.DEBUG)

    def peer_event(self, event: PeerLost | PeerFound) -> None:
        """Records that a peer was lost or answers again."""
        name = ipv4.text(event.peer)
        if isinstance(event, PeerFound):
            self.record_limited("peers that answer again", f"{name} answers again", logging.INFO)
            return
        self.counters.peers_lost += 1
        silent = f"it has not answered for {event.silent_s:.1f} s{relayed(event.relay)}"
        self.record_limited("peers lost", f"{name} is lost: {silent}, connections ended: {event.connections}")

    def exhausted(self, text: str, topic: str = "") -> None:
        """Records that memory or file descriptors ran out.

        Shortages show in several places at once, so an event with the same text is counted even if others came
        between. With a topic the event is limited as by `record_limited`.
        """
        self.counters.shortages += 1
        if topic:
            self.record_limited(topic, text)
            return
        with self._lock:
            before = next((event for event in self._events if event.text == text), None)
            if before is not None:
                self._events.remove(before)
                self._events.append(before)
            self.record(text)

    def internal_error(self, text: str) -> None:
        """Records an unexpected exception. Call it in the `except` block: the log gets the traceback."""
        self.counters.failures += 1
        log.exception("%s", text)
        self.record(f"{text}: the log has its traceback", logging.DEBUG)
