"""The event log is bounded for any behaviour of peers; its counters are exact."""

from __future__ import annotations

import logging

import pytest

from softnic.tcp.liveness import PeerFound, PeerLost
from softnicd.event_log import BURST, INTERVAL_S, EventLog


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_lines_about_invented_addresses_are_limited_and_summarised(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "softnicd")
    event_log = EventLog(clock)
    event_log.record("something that is to be found afterwards")
    for address in range(10_000):
        event_log.peer_event(PeerLost(0x0A4D0002 + address, 4.0, 1))
    for address in range(10_000):
        event_log.peer_event(PeerFound(0x0A4D0002 + address))
    assert len(caplog.messages) == 1 + 2 * BURST
    assert event_log.counters.peers_lost == 10_000
    clock.now += INTERVAL_S
    event_log.flush_topics()
    event_log.flush_topics()
    assert len(caplog.messages) == 3 + 2 * BURST
    more = f"{10_000 - BURST} more in 60 s, the last: 10.77.39.17"
    assert caplog.messages[-2] == f"peers lost: {more} is lost: it has not answered for 4.0 s, connections ended: 1"
    assert caplog.messages[-1] == f"peers that answer again: {more} answers again"
    assert [event.text for event in event_log.events] == caplog.messages
    event_log.peer_event(PeerLost(1, 4.0, 1))
    assert "0.0.0.1 is lost" in caplog.messages[-1]
    event_log.peer_event(PeerLost(1, 4.0, 1, "192.0.2.1:9500"))
    assert "has not answered for 4.0 s, relayed by 192.0.2.1:9500, conn" in caplog.messages[-1]


def test_lines_about_streams_without_memory_are_limited_and_summarised(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    event_log = EventLog(clock)
    for number in range(100):
        event_log.exhausted(f"stream {number} was ended", "streams ended")
    assert len(caplog.messages) == BURST
    assert event_log.counters.shortages == 100
    clock.now += INTERVAL_S
    event_log.exhausted("stream 100 was ended", "streams ended")
    assert caplog.messages[-2:] == [
        f"streams ended: {100 - BURST} more in 60 s, the last: stream 99 was ended",
        "stream 100 was ended",
    ]


def test_a_clock_that_is_set_back_does_not_suppress_lines(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    event_log = EventLog(clock)
    for number in range(BURST + 1):
        event_log.record_limited("things", f"thing {number}")
    clock.now -= 1e6
    event_log.flush_topics()
    assert len(caplog.messages) == BURST + 1


def test_text_of_others_has_no_escape_sequences(caplog: pytest.LogCaptureFixture) -> None:
    event_log = EventLog()
    event_log.record("a program named \x1b]0;evil\x07\n was lost")
    assert caplog.messages == [event_log.events[0].text] == ["a program named ?]0;evil?? was lost"]
