"""What happened to a NIC, for people: `softnic stat` shows it, the log has it too.

Only what somebody may want to know afterwards comes here: a start, peers and programs that were lost, what ran short,
what was put right. It is bounded; what repeats itself counts up instead of pushing the rest out. Of what may happen as
often as a peer or a program likes, each time about another address, process or stream, there are BURST lines in
INTERVAL_S, and then one that says how many more. Counters are exact.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from softnic.ipc.control import NicEvent
from softnic.packet import ipv4
from softnic.tcp.liveness import PeerFound, PeerLost

MOST_EVENTS = 100
"""As many as a NicStats has room for, beside its streams."""
MOST_TEXT = 400
BURST = 8
"""Lines of one topic in INTERVAL_S that are written each by itself."""
INTERVAL_S = 60.0

log = logging.getLogger("softnicd")


@dataclass(slots=True)
class FaultCounters:
    peers_lost: int = 0
    """Nodes that did not answer, and whose connections were ended."""
    programs_lost: int = 0
    """Programs that stood still, and whose streams were ended."""
    shortages: int = 0
    """Times that something could not be done for want of memory or descriptors."""
    failures: int = 0
    """Of the NIC itself, each with a traceback in its log."""


@dataclass(slots=True)
class _Topic:
    """What has been said of it since the interval began."""

    began: float
    lines: int = 0
    kept: int = 0
    """Not written, and the last of these."""
    last: str = ""


class Journal:
    """`clock` gives the seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.counters = FaultCounters()
        self._clock = clock
        self._events: deque[NicEvent] = deque(maxlen=MOST_EVENTS)
        self._topics: dict[str, _Topic] = {}

    def note(self, text: str, level: int = logging.WARNING) -> None:
        """Something happened. The same again, with nothing between, is one event that counts."""
        text = text[:MOST_TEXT]
        last = self._events[-1] if self._events else None
        if last is not None and last.text == text:
            self._events[-1] = NicEvent(self._clock(), text, last.count + 1)
        else:
            self._events.append(NicEvent(self._clock(), text))
            log.log(level, "%s", text)

    def note_one_of(self, topic: str, text: str, level: int = logging.WARNING) -> None:
        """One of many things that may happen. `topic` is in the plural: `peers lost`."""
        self.sum_up()
        state = self._topics.setdefault(topic, _Topic(self._clock()))
        if state.lines < BURST:
            state.lines += 1
            self.note(text, level)
        else:
            state.kept += 1
            state.last = text

    def sum_up(self) -> None:
        """Writes how many lines were not written, of each topic whose interval is over. To be called now and then."""
        now = self._clock()
        for topic, state in list(self._topics.items()):
            if 0 <= now - state.began < INTERVAL_S:
                continue
            del self._topics[topic]
            if state.kept:
                self.note(f"{topic}: {state.kept} more in {now - state.began:.0f} s, the last: {state.last}")

    def began(self, ip: str, took_over: bool) -> None:
        """`took_over`: an earlier NIC had left its control socket behind."""
        before = ", in the place of one that did not end in good order" if took_over else ""
        self.note(f"started as {ip}, process {os.getpid()}{before}", logging.DEBUG)

    def peer(self, event: PeerLost | PeerFound) -> None:
        name = ipv4.text(event.peer)
        if isinstance(event, PeerFound):
            self.note_one_of("peers that are there again", f"{name} is there again", logging.INFO)
            return
        self.counters.peers_lost += 1
        silent = f"it has not answered for {event.silent_s:.1f} s"
        self.note_one_of("peers lost", f"{name} is lost: {silent}, connections ended: {event.connections}")

    def short(self, text: str, topic: str = "") -> None:
        """Memory or descriptors ran out. It does so in several places at once: what comes again counts, whatever came
        between. With a topic the text is one of many."""
        self.counters.shortages += 1
        if topic:
            self.note_one_of(topic, text)
            return
        before = next((event for event in self._events if event.text == text), None)
        if before is not None:  # is the last one now
            self._events.remove(before)
            self._events.append(before)
        self.note(text)

    def failed(self, text: str) -> None:
        """To be called where an exception that is a mistake of ours was caught: its traceback goes to the log."""
        self.counters.failures += 1
        log.exception("%s", text)
        self.note(f"{text}: the log has its traceback", logging.DEBUG)

    @property
    def events(self) -> list[NicEvent]:
        """Oldest first."""
        return list(self._events)
