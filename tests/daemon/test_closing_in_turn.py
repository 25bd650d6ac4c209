"""An application that closes while its NIC takes a turn: a write finds the end closed before epoll reports it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.ipc import control
from softnic.link.udp import VxlanLink
from tests.daemon.wired_nics import Mode, WiredNics


@pytest.fixture(params=["whole", "link", "python"])
def nics(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WiredNics]:
    mode: Mode = request.param
    pair = WiredNics(tmp_path, mode)
    yield pair
    pair.close()


def test_bytes_that_arrive_for_it_reset_the_connection(nics: WiredNics) -> None:
    sender, receiver = nics.daemons
    wire = receiver._wire
    assert isinstance(wire, VxlanLink)
    nics.write(0, bytes(1000))
    sender.turn(sender._selector.epoll.poll(0))
    nics.ends.pop(2).close()
    events = receiver._selector.epoll.poll(0)
    arrived = [event for event in events if event[0] == wire.fileno()]
    assert 0 < len(arrived) < len(events)
    nics.turn_with(1, arrived)
    assert not receiver.first.streams.table.streams[nics.streams[1]].output_open
    nics.turn_with(1, [event for event in events if event not in arrived])
    nics.turn(20)
    info = nics.call(0, control.QueryStream(nics.streams[0]))
    assert isinstance(info, control.StreamInfo)
    assert info.error == errno.ECONNRESET


def test_a_question_that_comes_before_the_event_learns_of_it(nics: WiredNics) -> None:
    """A close with SO_LINGER asks at once, and does not wait for a stream that other descriptors have."""
    streams, number = nics.daemons[1].first.streams, nics.streams[1]
    before = streams.table.status(number, streams.now(), clear=False)
    nics.ends.pop(2).close()
    after = streams.table.status(number, streams.now(), clear=False)
    assert before is not None
    assert after is not None
    assert (before.closed, after.closed) == (False, True)
