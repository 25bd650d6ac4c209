"""Figures of what a process group has exchanged."""

from __future__ import annotations

import pytest

from tests import needs

needs.module("torch")

from softnic.comm.connections import Traffic  # noqa: E402
from softnic.socket import StreamInfo  # noqa: E402
from softnic.torch.traffic import CallClock, GroupStats  # noqa: E402


def test_concurrent_calls_take_the_time_of_their_union(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    clock = CallClock()
    clock.begin()
    now = 101.0
    clock.begin()
    now = 103.0
    clock.end()
    now = 104.0
    assert clock.stats(Traffic()).exchange_s == 4.0  # still in progress
    clock.end()
    now = 110.0
    clock.begin()
    now = 110.5
    clock.end()
    assert clock.stats(Traffic()) == GroupStats(3, 0, 0, 0, 4.5)


def test_bytes_of_all_connections_are_added() -> None:
    def stream(sent: int, original: int, encoded: int, wire: int) -> StreamInfo:
        return StreamInfo(
            1,
            "ESTABLISHED",
            ("10.77.0.1", 1),
            bytes_sent=sent,
            offload_original_bytes=original,
            offload_encoded_bytes=encoded,
            wire_bytes_sent=wire,
        )

    found = CallClock().stats(Traffic.of([stream(1000, 800, 100, 500), stream(200, 0, 0, 250)]))
    assert found == GroupStats(0, 1200, 500, 750, 0.0)
    assert found.ratio == 2.4


@pytest.mark.parametrize(("acknowledged", "on_their_way"), [(8000, 0), (8000, 800), (8000, 24_000), (80, 0), (0, 800)])
def test_bytes_on_their_way_do_not_count(acknowledged: int, on_their_way: int) -> None:
    original = 8000 + on_their_way
    stream = StreamInfo(
        1,
        "ESTABLISHED",
        ("10.77.0.1", 1),
        bytes_sent=acknowledged,
        offload_original_bytes=original,
        offload_encoded_bytes=original // 8,
    )
    assert Traffic.of([stream]) == Traffic(acknowledged, acknowledged // 8, 0)


def test_differences_have_the_ratio_of_what_happened_in_between() -> None:
    found = GroupStats(9, 5000, 2000, 2200, 1.5) - GroupStats(4, 1000, 1000, 1100, 1.0)
    assert found == GroupStats(5, 4000, 1000, 1100, 0.5)
    assert found.ratio == 4.0
    assert GroupStats(0, 0, 0, 0, 0.0).ratio == 1.0
