"""Which memory a stream in registered mode gives the NIC to decode into: each byte of it once, and in order."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from tests.daemon.test_registered import memfd
from tests.facades.daemon import Records, Regions, Settings, Stream
from tests.facades.ipc import RECEIVE, RECORD
from tests.tcp.lab import Lab


class Claims:
    """A connected stream over the stack's lab, with one region of 10,000 bytes."""

    def __init__(self) -> None:
        self.lab = Lab()
        self.sender, receiver = self.lab.pair()
        self.program, end = socket.socketpair()
        self.program.setblocking(False)
        self.poller = select.epoll()
        self.stream = Stream(1, end, self.poller, Settings())
        self.stream.connection = receiver
        self.regions = Regions(0)
        with memfd(10_000) as descriptor:
            self.number = self.regions.add(descriptor, self)
        self.records = self.stream.records = Records(self.stream, self.regions, 0)
        self.rcv = receiver.rcv

    def receive(self, offset: int, size: int, pad: int = 0) -> None:
        self.program.send(RECORD.pack(RECEIVE, 0, pad, 0, self.number, offset, size))
        self.stream.readable = True
        self.stream.pull()

    def claim(self, ahead: int, size: int) -> int | None:
        """The offset in the region of what is given for `size` bytes, so far ahead of what has come."""
        given = self.records.claim((self.rcv.irs + self.rcv.rcv_nxt + ahead) & 0xFFFFFFFF, size)
        if given is None:
            return None
        assert given.nbytes == size
        region = self.regions.get(self.number)
        assert region is not None
        given[:] = 0xAA
        offset = bytes(region).index(b"\xaa" * size)
        given[:] = 0
        return offset


@pytest.fixture
def claims() -> Iterator[Claims]:
    found = Claims()
    yield found
    found.stream.close()
    found.program.close()
    found.poller.close()


def test_what_is_next_goes_to_its_place(claims: Claims) -> None:
    assert claims.claim(0, 10) is None
    claims.receive(500, 1000)
    assert claims.claim(0, 100) == 500
    assert claims.claim(100, 100) == 600


def test_no_byte_is_given_twice(claims: Claims) -> None:
    claims.receive(0, 1000)
    assert claims.claim(0, 100) == 0
    assert claims.claim(0, 100) is None
    assert claims.claim(50, 100) is None
    assert claims.claim(200, 100) is None  # out of order
    assert claims.claim(100, 100) == 100


def test_neighbours_in_a_region_are_one_place(claims: Claims) -> None:
    claims.receive(0, 100)
    claims.receive(100, 100)
    claims.receive(5000, 100)
    assert claims.claim(0, 150) == 0
    assert claims.claim(150, 100) is None  # it would have to lie in two places
    assert claims.claim(250, 50) == 5050


def test_padding_is_nobodys(claims: Claims) -> None:
    claims.receive(0, 100, pad=28)
    claims.receive(100, 100)
    assert claims.claim(0, 110) is None
    assert claims.claim(110, 18) is None
    assert claims.claim(128, 50) == 100


def test_what_lies_elsewhere_is_copied(claims: Claims) -> None:
    claims.receive(100, 50)
    claims.sender.send(bytes(range(1, 51)))
    claims.lab.run(lambda: claims.rcv.unread == 50)
    claims.stream.push()
    region = claims.regions.get(claims.number)
    assert region is not None
    assert bytes(region[100:150]) == bytes(range(1, 51))
    assert claims.rcv.unread == 0
