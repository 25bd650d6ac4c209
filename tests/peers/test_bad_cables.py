"""Kernel TCP and softnic's over links that lose, delay, duplicate, reorder and corrupt frames."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softnic import socket
from tests import needs
from tests.peers.kernel_info import KernelInfo
from tests.peers.sides import SIDES, Side, Sides, exchange, sides

pytestmark = [needs.hosts, pytest.mark.slow]

CABLES = {
    "loses": {"delay": "2ms", "loss": "3%"},
    "shuffles": {"delay": "1ms", "rate": "200mbit", "reorder": "3%"},
    "doubles": {"delay": "1ms", "duplicate": "5%"},
    "damages": {"delay": "1ms", "corrupt": "2%"},
    "is slow, and short of memory": {"rate": "100mbit", "delay": "5ms", "limit": "30kb"},
    "does all of it": {"rate": "200mbit", "delay": "2ms", "jitter": "1ms", "loss": "2%", "duplicate": "1%"}
    | {"reorder": "1%", "corrupt": "0.5%"},
}
SIZE = 500_000
MOST_STREAMS = 50
both_open = pytest.mark.parametrize("opener", SIDES)


@pytest.fixture(scope="module", params=CABLES)
def cable(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def joined(cable: str) -> Iterator[Sides]:
    with sides(emulation=CABLES[cable]) as made:
        yield made


@both_open
def test_a_stream_each_way(joined: Sides, opener: Side, cable: str) -> None:
    """One after the other, then both at once. Both say what they saw: what was sent again, what came early."""
    with joined.connection(opener) as (kernel, ours):
        exchange((ours, kernel, SIZE))
        sent_again = socket.info(ours).retransmits
        exchange((kernel, ours, SIZE))
        told = KernelInfo.of(kernel)
        assert told.options == {"sack", "timestamps", "window scaling"}
        if "loss" in CABLES[cable]:
            assert sent_again
            assert told.retransmitted
            assert told.out_of_order
    with joined.connection(opener) as (kernel, ours):
        exchange((kernel, ours, SIZE), (ours, kernel, SIZE))


@both_open
def test_short_connections(joined: Sides, opener: Side) -> None:
    """Handshakes and closes succeed under the same impairments."""
    for _ in range(10):
        with joined.connection(opener) as (kernel, ours):
            exchange((kernel, ours, 1000), (ours, kernel, 1000))


def test_the_cable_was_that_bad(joined: Sides, cable: str) -> None:
    """Streams are sent until all has happened that is to: another process may have run the tests above."""
    assert joined.cable is not None
    bad = {"loss": "lost", "reorder": "reordered", "duplicate": "duplicated", "corrupt": "corrupted"}
    expected = {counter for what, counter in bad.items() if what in CABLES[cable]}
    if "limit" in CABLES[cable]:
        expected.add("dropped_full")
    for _ in range(MOST_STREAMS):
        happened = {name for name, count in joined.cable.counters().items() if count}
        if expected <= happened:
            break
        with joined.connection(SIDES[0]) as (kernel, ours):
            exchange((ours, kernel, SIZE), (kernel, ours, SIZE))
    assert happened & set(bad.values()) == expected - {"dropped_full"}
    assert happened >= expected
