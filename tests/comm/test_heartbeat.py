"""Whether a NIC lives: by a moving `now`, and a control socket that answers when the test wants it to."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from softnic.comm.heartbeat import HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S, Heartbeat, shared_heartbeat
from softnic.comm.offload_queue import Failure, OffloadQueue
from softnic.comm.peer import Peer
from softnic.comm.progress import Progress
from softnic.ipc import control, work_queue
from softnic.ipc.work_queue import WorkCompletion, WorkRequest


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
    pulse.poll(100.0 + HEARTBEAT_INTERVAL_S / 2)
    assert nic.answer() == 0
    pulse.poll(100.0 + HEARTBEAT_INTERVAL_S)
    pulse.poll(100.0 + HEARTBEAT_INTERVAL_S)
    assert nic.answer() == 1
    for beat in range(2, 100):
        pulse.poll(100.0 + beat * HEARTBEAT_INTERVAL_S)
        nic.answer()
    pulse.close()


def test_it_does_not_ask_a_nic_that_talks(nic: Nic) -> None:
    pulse = Heartbeat(nic.path, 0.0)
    for beat in range(100):
        pulse.on_reply(beat * HEARTBEAT_INTERVAL_S)
        pulse.poll((beat + 0.5) * HEARTBEAT_INTERVAL_S)
    assert nic.answer() == 0
    pulse.close()


def test_a_nic_that_does_not_answer_is_lost_in_time(nic: Nic) -> None:
    pulse = Heartbeat(nic.path, 0.0)
    beats = round(HEARTBEAT_TIMEOUT_S / HEARTBEAT_INTERVAL_S)
    for beat in range(beats + 1):
        pulse.poll(beat * HEARTBEAT_INTERVAL_S)
    with pytest.raises(OSError, match="it has not answered for 3 s") as lost:
        pulse.poll((beats + 1) * HEARTBEAT_INTERVAL_S)
    assert lost.value.errno == errno.ENETDOWN
    assert (beats + 1) * HEARTBEAT_INTERVAL_S < 5
    pulse.close()


def test_time_in_which_nobody_looked_does_not_count(nic: Nic) -> None:
    """This process, or the whole machine, may have stood still."""
    pulse = Heartbeat(nic.path, 0.0)
    pulse.poll(1.0)
    pulse.poll(1000.0)
    assert nic.answer() == 1
    pulse.poll(1000.1)
    pulse.close()


def test_a_nic_that_ends_is_lost_at_once(nic: Nic) -> None:
    pulse = Heartbeat(nic.path, 0.0)
    pulse.poll(1.0)
    nic.answer()
    nic.close()
    pulse.poll(1.1)
    with pytest.raises(OSError, match="is gone"):
        pulse.poll(2.0)
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
    progress = Progress(0)
    now = time.monotonic()
    progress.heartbeat = Heartbeat(nic.path, now - 10)
    for beat in range(6):
        progress.heartbeat.poll(now - 10 + (1 + beat) * HEARTBEAT_INTERVAL_S)
    progress.heartbeat.on_reply(time.monotonic())
    error = progress.lost(Peer(1), why)
    progress.heartbeat.close()
    assert error.rank == rank
    assert says in str(error)


@pytest.mark.parametrize(
    ("beats", "blamed"), [(4, Failure(0, "rank 0 lost its NIC: it stalled")), (3, Failure(1, "rank 1 is gone: reset"))]
)
def test_after_a_stall_a_failure_of_the_work_queue_is_the_own_nics(nic: Nic, beats: int, blamed: Failure) -> None:
    """Peers that have given this rank's NIC up cancel their calls and reset their connections."""
    with contextlib.ExitStack() as stack:
        progress = Progress(0)
        peer = progress.peers[1] = Peer(1)
        peer.gone = ConnectionResetError(errno.ECONNRESET, "reset")
        progress.heartbeat = Heartbeat(nic.path, 0.0)
        stack.callback(progress.heartbeat.close)
        now = time.monotonic()
        for beat in range(beats):
            progress.heartbeat.poll(now - (beats - beat) * HEARTBEAT_INTERVAL_S)
        progress.heartbeat.on_reply(time.monotonic())
        assert progress.explain(Failure(1, "rank 1 cancelled Allreduce")) == blamed


class Beats:
    """A heartbeat that counts what it is asked, and may say that the NIC is gone."""

    def __init__(self) -> None:
        self.polls = self.replies = 0
        self.gone = False

    def poll(self, _now: float) -> None:
        self.polls += 1
        if self.gone:
            raise OSError(errno.ENETDOWN, "the NIC at x is gone: it has not answered for 3 s")

    def on_reply(self, _now: float) -> None:
        self.replies += 1

    def has_stalled(self, _now: float) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""


class Owner:
    def __init__(self) -> None:
        self.failures: list[tuple[str, Failure]] = []

    def explain(self, failure: Failure) -> Failure:
        return failure

    def on_failure(self, call: str, failure: Failure) -> None:
        self.failures.append((call, failure))


def test_a_nic_is_asked_for_life_exactly_while_a_call_is_outstanding() -> None:
    """Also while it is busy with others it answers; and a call that waits for a NIC that is gone fails."""
    ours, nics = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    beats, owner = Beats(), Owner()
    queue = OffloadQueue(0, ours, cast(Any, beats), [], owner)
    with ours, nics:
        queue.advance()
        assert beats.polls == 0
        request = queue.post("Barrier", barrier, lambda: None)
        queue.advance()
        assert (beats.polls, beats.replies, request.settled) == (1, 0, False)
        nics.send(work_queue.encode(WorkCompletion(1)))
        queue.advance()
        assert (beats.polls, beats.replies, request.settled) == (1, 1, True)
        queue.advance()
        assert beats.polls == 1
        beats.gone = True
        queue.advance()
        assert owner.failures == []
        second = queue.post("Bcast", barrier, lambda: None)
        queue.advance()
        gone = Failure(0, "rank 0 lost its NIC: the NIC at x is gone: it has not answered for 3 s")
        assert [second.failure, *(failure for _, failure in owner.failures)] == [gone, gone]
        assert owner.failures[0][0] == "Bcast"


def barrier(number: int) -> WorkRequest:
    return WorkRequest(number, "Barrier", "allreduce", "ring", "uint8", (1, 1), (0, 0), (0, 0), "MAX", -1, "", False)


def test_communicators_share_the_heartbeat_of_their_nic(nic: Nic, tmp_path: Path) -> None:
    first, second = shared_heartbeat(nic.path, 0.0), shared_heartbeat(nic.path, 0.0)
    assert first is second
    other = Nic(tmp_path / "other.sock")
    elsewhere = shared_heartbeat(other.path, 0.0)
    assert elsewhere is not first
    first.poll(1.0)
    second.poll(1.0)
    assert nic.answer() == 1
    for each in (first, elsewhere):
        each.release()
    second.poll(2.0)
    second.poll(3.0)
    assert nic.answer() == 1
    second.poll(3.1)
    second.release()
    assert nic.client is not None
    assert not nic.client.recv(1), "the last one closes it"
    third = shared_heartbeat(nic.path, 0.0)
    assert third is not first
    third.release()
    other.close()


@pytest.mark.parametrize("noticed", [False, True])
def test_a_nic_that_is_started_again_gets_a_heartbeat_of_its_own(tmp_path: Path, noticed: bool) -> None:
    path = tmp_path / "nic.sock"
    nic = Nic(path)
    old = shared_heartbeat(nic.path, 0.0)
    old.poll(1.0)
    nic.answer()
    nic.close()
    path.unlink()
    if noticed:
        old.poll(1.1)
        with pytest.raises(OSError, match="is gone"):
            old.poll(2.0)
    nic = Nic(path)
    new = shared_heartbeat(nic.path, 2.0)
    new.poll(3.0)
    assert nic.answer() == 1
    old.release()
    assert shared_heartbeat(nic.path, 3.0) is new
    for _ in range(2):
        new.release()
    nic.close()


def test_a_forked_process_has_no_part_in_the_heartbeats_of_its_parent(nic: Nic) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there may be other threads
        beat = shared_heartbeat(nic.path, 0.0)
        child = os.fork()
    if not child:
        own = shared_heartbeat(nic.path, 0.0)
        os._exit(0 if own is not beat and beat._socket.fileno() < 0 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    beat.poll(1.0)
    assert nic.answer() == 1
    beat.release()


def test_a_thread_that_wakes_another_is_no_sign_of_life() -> None:
    beats = Beats()
    progress = Progress(0)
    progress.heartbeat = cast(Any, beats)
    progress.waiter._waker.wake()
    progress.turn()
    assert (beats.polls, beats.replies) == (1, 0)
    progress.close()
