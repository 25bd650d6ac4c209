"""NICs whose peers move to other addresses in mid-stream: no byte is lost, and traffic goes on within a second."""

from __future__ import annotations

import contextlib
import secrets
import select
import socket as plain
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.ipc import control
from tests.daemon.nics import WAIT_S, Nic, pair, serving
from tests.daemon.test_identities import Known, call, ways

STREAM_BYTES = 60_000_000
MOST_GAP_S = 1.0


class Nat:
    """An address translator before one NIC, in a thread: `inside` is what the NIC sends to, `outside` what others
    hear it from."""

    def __init__(self, node: tuple[str, int], other: tuple[str, int]) -> None:
        self._stack, self._node, self._other = contextlib.ExitStack(), node, other
        self.inside = self._open()
        self.outside = self._open()
        self.passes = True
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _open(self) -> plain.socket:
        opened = self._stack.enter_context(plain.socket(plain.AF_INET, plain.SOCK_DGRAM))
        opened.bind(("127.0.0.1", 0))
        opened.setsockopt(plain.SOL_SOCKET, plain.SO_RCVBUF, 4 << 20)
        opened.setblocking(False)
        return opened

    def rebind(self) -> None:
        """Take another port; what comes to the former one is lost."""
        self.outside = self._open()

    def _run(self) -> None:
        while not self._stop.is_set():
            outside = self.outside
            for ready in select.select([self.inside, outside], [], [], 0.01)[0]:
                sink, to = (outside, self._other) if ready is self.inside else (self.inside, self._node)
                with contextlib.suppress(OSError):  # nothing is left, or a NIC has ended
                    for _ in range(64):
                        data = ready.recv(65536)
                        if self.passes:
                            sink.sendto(data, to)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(WAIT_S)
            self._stack.close()


def wire_of(nic: Nic) -> tuple[str, int]:
    host, _, port = nic.command[nic.command.index("--wire") + 1].partition(":")
    return host, int(port)


class Moving:
    """Two NICs, the first behind an address translator."""

    def __init__(self, nics: list[Nic], nat: Nat) -> None:
        self.nics, self.nat = nics, nat

    def stream(self, sender: int, moves: int) -> float:
        """Send a stream while the translator rebinds. Returns the longest time without a byte."""
        a, b = pair([self.nics[sender], self.nics[1 - sender]])
        data = secrets.token_bytes(STREAM_BYTES)
        got, longest = bytearray(), 0.0
        with a, b:

            def write() -> None:
                a.sendall(data)
                a.close()

            writer = threading.Thread(target=write)
            writer.start()
            last, moved = time.monotonic(), 0
            while piece := b.recv(1 << 20):
                got += piece
                now = time.monotonic()
                longest, last = max(longest, now - last), now
                if moved < moves and len(got) > (moved + 1) * STREAM_BYTES // (moves + 1):
                    moved += 1
                    self.nat.rebind()
            writer.join(WAIT_S)
        assert bytes(got) == data
        assert moved == moves
        return longest


@pytest.fixture(params=[(), ("--queues", "2")], ids=["one queue", "two queues"])
def moving(request: pytest.FixtureRequest) -> Iterator[Moving]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        made = Known(Path(directory), 2, "--rate", "1gbit", *request.param)
        first, second = made.nics
        nat = Nat(wire_of(first), wire_of(second))
        stack.enter_context(nat.running())
        for nic, other in ((first, nat.inside), (second, nat.outside)):
            ip, _, _ = nic.command[-1].partition("=")
            nic.command[-1] = f"{ip}=127.0.0.1:{other.getsockname()[1]}"
        stack.enter_context(serving(made.nics))
        yield Moving(made.nics, nat)


@pytest.mark.parametrize("sender", [0, 1], ids=["the sender moves", "the receiver moves"])
def test_a_stream_goes_on_when_an_address_changes(moving: Moving, sender: int) -> None:
    longest = moving.stream(sender, moves=2)
    assert longest <= MOST_GAP_S + 1.0  # the machine is shared
    print(f"longest time without a byte: {longest:.3f} s")
    [way] = ways(moving.nics[1])
    assert way.moves >= 2
    assert way.address == f"127.0.0.1:{moving.nat.outside.getsockname()[1]}"


def test_nics_that_are_offered_candidates_find_each_other(moving: Moving) -> None:
    """The NICs know each other's keys, and get addresses at run time: one dead, one of a relay, one direct."""
    with plain.socket(plain.AF_INET, plain.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        for nic, other, through in (
            (moving.nics[0], moving.nics[1], moving.nat.inside),
            (moving.nics[1], moving.nics[0], moving.nat.outside),
        ):
            candidates = [
                candidate(nobody.getsockname(), 9),
                candidate(through.getsockname(), 5, relayed=True),
                candidate(wire_of(other), 1),
            ]
            assert call(nic, control.AddPeer(other.ip, candidates=candidates)) == control.Done()
        deadline = time.monotonic() + WAIT_S
        while any(way.relayed or way.address not in direct(moving) for nic in moving.nics for way in ways(nic)):
            assert time.monotonic() < deadline
            select.select([], [], [], 0.05)
    assert moving.stream(0, moves=1) < WAIT_S


def candidate(address: tuple[str, int], preference: int, *, relayed: bool = False) -> control.PeerCandidate:
    host, port = address
    return control.PeerCandidate(host, port, preference, relayed)


def direct(moving: Moving) -> set[str]:
    return {f"127.0.0.1:{wire_of(nic)[1]}" for nic in moving.nics}
