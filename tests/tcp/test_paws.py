"""Timestamps: PAWS, the echoed value, and information exposed (RFC 7323, sections 3 to 5)."""

from __future__ import annotations

import errno

import pytest

from tests.tcp.script import ACK, PEER, RST, Script


class TestPaws:
    def test_an_older_timestamp_is_dropped_and_answered(self, script: Script) -> None:
        connection = script.accept(timestamps=(1000, 0))
        assert script.shape(script.receive(ACK, 1, 1, b"x", timestamps=(999, 0))) == [("A", 1, 1, 0)]
        assert not connection.received
        assert script.host.counters.dropped_paws == 1

    def test_a_segment_without_timestamps_is_dropped(self, script: Script) -> None:
        connection = script.accept(timestamps=(1000, 0))
        assert script.receive(ACK, 1, 1, b"x") == []
        assert not connection.received

    def test_a_reset_needs_no_timestamps(self, script: Script) -> None:
        connection = script.accept(timestamps=(1000, 0))
        script.receive(RST, 1)
        assert connection.error == errno.ECONNRESET

    def test_the_echoed_value_is_of_the_segment_that_advanced_the_window(self, script: Script) -> None:
        script.accept(timestamps=(1000, 0))
        [ack] = script.receive(ACK, 1, 1, b"x", timestamps=(1005, 0))
        assert ack.timestamps is not None
        assert ack.timestamps[1] == 1005
        [duplicate] = script.receive(ACK, 3, 1, b"z", timestamps=(1009, 0))
        assert duplicate.timestamps is not None
        assert duplicate.timestamps[1] == 1005

    def test_only_acceptable_segments_set_the_echoed_value(self, script: Script) -> None:
        """Otherwise a guessed timestamp in a segment outside the window could block a connection."""
        connection = script.accept(timestamps=(1000, 0))
        script.receive(ACK, -50_000, 77, b"x", timestamps=(1_000_000, 0))
        assert script.host.counters.dropped_sequence == 1
        script.receive(ACK, 1, 1, b"x", timestamps=(1005, 0))
        assert connection.recv(1) == b"x"

    def test_a_duplicate_segment_is_answered_with_its_own_timestamp(self, script: Script) -> None:
        script.accept(timestamps=(1000, 0))
        script.receive(ACK, 1, 1, b"x", timestamps=(1005, 0))
        [again] = script.receive(ACK, 1, 1, b"x", timestamps=(1205, 0))
        assert again.timestamps is not None
        assert again.timestamps[1] == 1205

    @pytest.mark.parametrize(("days", "got"), [(23, b""), (25, b"x")])
    def test_after_24_days_any_timestamp_is_new(self, script: Script, days: int, got: bytes) -> None:
        connection = script.accept(timestamps=(1000, 0))
        script.now += days * 86400
        script.receive(ACK, 1, 1, b"x", timestamps=(5, 0))
        assert connection.recv(1) == got

    def test_the_clock_ticks_in_milliseconds_and_does_not_expose_the_uptime(self, script: Script) -> None:
        """RFC 7323, section 5.4; it continues from the previous connection to the same address (RFC 6191)."""
        stamps = []
        for _ in range(2):
            script.host.connect(PEER, 80, script.now)
            [syn] = script.sent()
            assert syn.timestamps is not None
            stamps.append(syn.timestamps[0])
            script.now += 0.5
        assert stamps[1] - stamps[0] == 500
        assert abs(stamps[0] - 100_000) > 1000
