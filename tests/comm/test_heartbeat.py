"""Whether a NIC lives: by a moving `now`, and a control socket that answers when the test wants it to."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.facades.comm import (
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_TIMEOUT_S,
    Failure,
    Heartbeat,
    Peer,
    Progress,
    on_heartbeat_reply,
    poll_heartbeat,
)
from tests.facades.ipc import control


class Nic:
    """A control socket, and the NIC behind it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        self.client: socket.socket | None = None

    def answer(self) -> int:
        """Answers what was asked. Returns how many times it was."""
        if self.client is None:
            self.client, _ = self._listener.accept()
            self.client.setblocking(False)
        count = 0
        while True:
            try:
                request = control.decode_request(self.client.recv(1 << 16))
            except BlockingIOError:
                return count
            assert isinstance(request, control.Ping)
            self.client.send(control.encode(control.Done()))
            count += 1

    def close(self) -> None:
        self._listener.close()
        if self.client is not None:
            self.client.close()


@pytest.fixture
def nic(tmp_path: Path) -> Iterator[Nic]:
    made = Nic(tmp_path / "nic.sock")
    yield made
    made.close()


def test_it_asks_now_and_then(nic: Nic) -> None:
    pulse = Heartbeat(nic.path, 100.0)
    poll_heartbeat(pulse, 100.0 + HEARTBEAT_INTERVAL_S / 2)
    assert nic.answer() == 0
    poll_heartbeat(pulse, 100.0 + HEARTBEAT_INTERVAL_S)
    poll_heartbeat(pulse, 100.0 + HEARTBEAT_INTERVAL_S)
    assert nic.answer() == 1
    for beat in range(2, 100):
        poll_heartbeat(pulse, 100.0 + beat * HEARTBEAT_INTERVAL_S)
        nic.answer()
    pulse.close()


def test_it_does_not_ask_a_nic_that_talks(nic: Nic) -> None:
    pulse = Heartbeat(nic.path, 0.0)
    for beat in range(100):
        on_heartbeat_reply(pulse, beat * HEARTBEAT_INTERVAL_S)
        poll_heartbeat(pulse, (beat + 0.5) * HEARTBEAT_INTERVAL_S)
    assert nic.answer() == 0
    pulse.close()


def test_a_nic_that_does_not_answer_is_lost_in_time(nic: Nic) -> None:
    pulse = Heartbeat(nic.path, 0.0)
    beats = round(HEARTBEAT_TIMEOUT_S / HEARTBEAT_INTERVAL_S)
    for beat in range(beats + 1):
        poll_heartbeat(pulse, beat * HEARTBEAT_INTERVAL_S)
    with pytest.raises(OSError, match="it has not answered for 3 s") as lost:
        poll_heartbeat(pulse, (beats + 1) * HEARTBEAT_INTERVAL_S)
    assert lost.value.errno == errno.ENETDOWN
    assert (beats + 1) * HEARTBEAT_INTERVAL_S < 5
    pulse.close()


def test_time_in_which_nobody_looked_does_not_count(nic: Nic) -> None:
    """This process, or the whole machine, may have stood still."""
    pulse = Heartbeat(nic.path, 0.0)
    poll_heartbeat(pulse, 1.0)
    poll_heartbeat(pulse, 1000.0)
    assert nic.answer() == 1
    poll_heartbeat(pulse, 1000.1)
    pulse.close()


def test_a_nic_that_ends_is_lost_at_once(nic: Nic) -> None:
    pulse = Heartbeat(nic.path, 0.0)
    poll_heartbeat(pulse, 1.0)
    nic.answer()
    nic.close()
    poll_heartbeat(pulse, 1.1)
    with pytest.raises(OSError, match="is gone"):
        poll_heartbeat(pulse, 2.0)
    pulse.close()


def test_no_nic_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is gone"):
        Heartbeat(str(tmp_path / "none.sock"), 0.0)


@pytest.mark.parametrize(
    ("why", "rank", "says"),
    [
        (ConnectionResetError(errno.ECONNRESET, "10.77.0.2:7 reset the connection"), 0, "rank 0 lost its NIC"),
        ("it closed the connection without a word", 1, "rank 1 is gone"),  # as a process does that dies
    ],
)
def test_a_nic_that_stood_still_is_to_blame_for_resets_only(nic: Nic, why: str | OSError, rank: int, says: str) -> None:
    with contextlib.ExitStack() as stack:
        connections = tuple(stack.enter_context(socket.socket()) for _ in range(5))
        progress = Progress(0, {}, None)
        now = time.monotonic()
        progress.heartbeat = Heartbeat(nic.path, now - 10)
        for beat in range(6):
            poll_heartbeat(progress.heartbeat, now - 10 + (1 + beat) * HEARTBEAT_INTERVAL_S)
        on_heartbeat_reply(progress.heartbeat, time.monotonic())
        error = progress.lost(Peer(1, connections), why)
        progress.heartbeat.close()
    assert error.rank == rank
    assert says in str(error)


@pytest.mark.parametrize(
    ("beats", "blamed"), [(4, Failure(0, "rank 0 lost its NIC: it stalled")), (3, Failure(1, "rank 1 is gone: reset"))]
)
def test_after_a_stall_a_failure_of_the_work_queue_is_the_own_nics(nic: Nic, beats: int, blamed: Failure) -> None:
    """Peers that have given this rank's NIC up cancel their calls and reset their connections."""
    with contextlib.ExitStack() as stack:
        progress = Progress(0, {}, None)
        peer = progress.peers[1] = Peer(1, tuple(stack.enter_context(socket.socket()) for _ in range(5)))
        peer.gone = ConnectionResetError(errno.ECONNRESET, "reset")
        progress.heartbeat = Heartbeat(nic.path, 0.0)
        stack.callback(progress.heartbeat.close)
        now = time.monotonic()
        for beat in range(beats):
            poll_heartbeat(progress.heartbeat, now - (beats - beat) * HEARTBEAT_INTERVAL_S)
        on_heartbeat_reply(progress.heartbeat, time.monotonic())
        assert progress.explain(Failure(1, "rank 1 cancelled Allreduce")) == blamed
