"""Single messages: order, tags, sources, types, and what cannot come any more."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from softnic import MPI, codecs
from softnic.comm import matching, messages
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.outbox import CREDIT_BYTES
from softnic.mpi.communicator import Communicator
from tests.mpi.connections import held_bytes, send_control_bytes, send_credit
from tests.mpi.ranks import Ranks, failures, gradient, run


@pytest.mark.parametrize("count", [0, 1, 1000, 1_000_003])
def test_send_and_recv(count: int) -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.Send(np.arange(count, dtype=np.int32), 1, tag=7)
        else:
            data, status = np.full(count + 3, -1, np.int32), MPI.Status()
            comm.Recv(data, source=0, tag=7, status=status)
            np.testing.assert_array_equal(data[:count], np.arange(count))
            assert (data[count:] == -1).all()
            assert (status.Get_source(), status.Get_tag(), status.Get_count(MPI.INT)) == (0, 7, count)
            assert status.Get_count() == 4 * count

    run(2, program)


def test_messages_of_one_sender_come_in_order_whatever_their_kind() -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            for number in range(20):
                comm.Send(np.full(100, number), 1)
                comm.send({"number": number}, 1)
        else:
            for number in range(20):
                data = np.zeros(100, int)
                comm.Recv(data)
                assert (data == number).all()
                assert comm.recv() == {"number": number}

    run(2, program)


def test_tags_are_received_in_any_order() -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            for tag in (1, 2, 1, 3):
                comm.Send(np.full(50_000, tag * 10.0), 1, tag)
            comm.Send_comp(gradient(0, 1001), 1, 4, codec="bounded:10")
        else:
            floats = np.empty(1001, np.float32)
            comm.Recv_comp(floats, 0, 4)
            assert floats.tobytes() == codecs.get("bounded:10").roundtrip(gradient(0, 1001)).tobytes()
            for tag in (3, 1, 2, 1):
                data, status = np.zeros(50_000), MPI.Status()
                comm.Recv(data, MPI.ANY_SOURCE, tag, status)
                assert (data == tag * 10).all()
                assert status.tag == tag

    run(2, program)


def test_any_source_takes_the_messages_of_all() -> None:
    def program(comm: Communicator) -> set[int]:
        if comm.rank:
            comm.Send(np.array([comm.rank]), 0, tag=comm.rank)
            return set()
        found = set()
        for _ in range(comm.size - 1):
            data, status = np.zeros(1, int), MPI.Status()
            comm.Recv(data, status=status)
            assert data[0] == status.Get_source() == status.Get_tag()
            found.add(status.source)
        return found

    assert run(5, program)[0] == {1, 2, 3, 4}


def test_two_ranks_may_send_each_other_large_messages_at_once() -> None:
    def program(comm: Communicator) -> None:
        other = 1 - comm.rank
        comm.Send(np.full(4_000_000, comm.rank, np.float32), other)
        data = np.empty(4_000_000, np.float32)
        comm.Recv(data, other)
        assert (data == other).all()

    run(2, program)


def test_messages_sent_before_a_collective_are_received_after_it() -> None:
    """On the very connections that the collective uses."""

    def program(comm: Communicator) -> None:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.Send(np.full(300_000, comm.rank, np.float32), right)
        comm.Send_comp(np.full(300_001, comm.rank, np.float32), right, codec="bounded:10")
        total = np.ones(200_001, np.float32)
        comm.Allreduce(MPI.IN_PLACE, total)
        comm.Allreduce_comp(MPI.IN_PLACE, total, codec="inceptionn:10")
        assert (total == 9).all()
        assert comm.allreduce(1) == 3
        data = np.empty(300_000, np.float32)
        comm.Recv(data, left)
        assert (data == left).all()
        data = np.empty(300_001, np.float32)
        comm.Recv_comp(data, left, codec="bounded:10")
        assert (data == left).all()

    run(3, program)


def test_a_rank_sends_to_itself_and_to_nobody() -> None:
    def program(comm: Communicator) -> None:
        mine = np.arange(5)
        comm.Send(mine, comm.rank, tag=3)
        mine[:] = 0
        comm.send("me", comm.rank)
        data = np.zeros(5, int)
        comm.Recv(data, comm.rank, 3)
        assert data.tolist() == [0, 1, 2, 3, 4]
        assert comm.recv(source=comm.rank) == "me"
        comm.Send(data, MPI.PROC_NULL)
        status = MPI.Status()
        comm.Recv(data, MPI.PROC_NULL, status=status)
        assert (status.source, status.count) == (MPI.PROC_NULL, 0)
        assert comm.recv(source=MPI.PROC_NULL) is None

    run(1, program)
    run(2, program)


def test_messages_keep_their_order_with_and_without_credit_for_inline_ones() -> None:
    """Nothing is received until all is sent: on the way the credit is used up. Afterwards the sender has it again."""
    sizes = [0, 1, 30_000, matching.INLINE_BYTES, matching.INLINE_BYTES + 1, 7, 100_000] * 8

    def program(comm: Communicator) -> None:
        for _ in range(3):
            if comm.rank == 0:
                for number, size in enumerate(sizes):
                    comm.Send(np.full(size, number, np.uint8), 1, number % 3)
                assert 0 <= send_credit(comm, 1) < 30_000
                comm.send("all is sent", 1, 9)
                assert comm.recv(source=1) == "all is received"
                assert CREDIT_BYTES * 3 // 4 <= send_credit(comm, 1) <= CREDIT_BYTES
            else:
                assert comm.recv(source=0, tag=9) == "all is sent"
                for tag in range(3):
                    for number in range(tag, len(sizes), 3):
                        data = np.full(sizes[number] + 1, 255, np.uint8)
                        comm.Recv(data, 0, tag)
                        assert (data[:-1] == number).all()
                        assert data[-1] == 255
                assert held_bytes(comm) == 0
                comm.send("all is received", 0)

    assert sum(size for size in sizes if size <= matching.INLINE_BYTES) > 2 * CREDIT_BYTES
    run(2, program)


def test_an_inline_message_may_change_at_the_sender_once_it_is_sent() -> None:
    def program(comm: Communicator) -> None:
        data = np.zeros(10_000)
        for number in range(20):
            if comm.rank == 0:
                data[:] = number
                comm.Send(data, 1)
            else:
                comm.Recv(data, 0)
                assert (data == number).all()

    run(2, program)


@pytest.mark.parametrize(
    "announce",
    [
        messages.Announce(0, 5, "uint8", data=memoryview(b"four")),
        messages.Announce(0, 4, "uint8", "bounded:10", memoryview(b"four")),
        messages.Announce(0, -1, "uint8"),
    ],
)
def test_an_announcement_that_contradicts_itself_is_an_error(announce: messages.Announce) -> None:
    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank == 0:
            send_control_bytes(comm, messages.pack(announce))
        comm.Recv(np.zeros(9), 1 - comm.rank)

    assert "rank 0 sent nonsense: a message of" in str(failures(2, program)[1])


@pytest.mark.parametrize("thing", [None, 1, "x" * 100_000, {"a": [1, 2]}, np.arange(3)])
def test_objects(thing: Any) -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.send(thing, 1, tag=1)
        else:
            np.testing.assert_equal(comm.recv(source=0, tag=1), thing)

    run(2, program)


MISFITS: dict[str, tuple[Any, Any, str]] = {
    "too long": (
        lambda c: c.Send(np.zeros(10), 1),
        lambda c, n: c.Irecv(np.zeros(9), 0).Wait() if n else c.Recv(np.zeros(9), 0),
        "rank 0 sent 10 x float64, tag 0: the receive buffer takes 9 x float64",
    ),
    "another type": (
        lambda c: c.Send(np.zeros(10), 1, 5),
        lambda c, n: c.Irecv(np.zeros(10, int), 0).Wait() if n else c.Recv(np.zeros(10, int), 0),
        "rank 0 sent 10 x float64, tag 5: the receive buffer takes 10 x int64",
    ),
    "an object": (
        lambda c: c.send([1] * 99, 1),
        lambda c, n: c.Irecv(np.zeros(9), 0).Wait() if n else c.Recv(np.zeros(9), 0),
        "rank 0 sent an object, tag 0",
    ),
    "no object": (
        lambda c: c.Send(np.zeros(3), 1),
        lambda c, n: c.irecv(source=0).wait() if n else c.recv(source=0),
        "rank 0 sent 3 x float64, tag 0: recv takes objects",
    ),
    "compressed": (
        lambda c: c.Send_comp(gradient(0, 5), 1, codec="bounded:10"),
        lambda c, n: c.Irecv(np.zeros(5, np.float32), 0).Wait() if n else c.Recv(np.zeros(5, np.float32), 0),
        "with bounded:10, tag 0: Recv receives what Send sent",
    ),
    "not compressed": (
        lambda c: c.Send(gradient(0, 5), 1),
        lambda c, n: c.Irecv_comp(np.zeros(5, np.float32), 0).Wait() if n else c.Recv_comp(np.zeros(5, np.float32), 0),
        "Recv_comp what Send_comp sent",
    ),
    "another codec": (
        lambda c: c.Send_comp(gradient(0, 5), 1, codec="bounded:10"),
        lambda c, n: (
            c.Irecv_comp(np.zeros(5, np.float32), 0, codec="bounded:9").Wait()
            if n
            else c.Recv_comp(np.zeros(5, np.float32), 0, codec="bounded:9")
        ),
        "with bounded:10, tag 0: Recv_comp names bounded:9",
    ),
}


@pytest.mark.parametrize("what", MISFITS)
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("nonblocking", [True, False])
def test_a_message_that_does_not_fit_is_an_error_of_its_receive(what: str, early: bool, nonblocking: bool) -> None:
    """Whether it was there before the receive or came later. It is dropped, and the communicator remains usable."""
    send, receive, says = MISFITS[what]

    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            send(comm)
        if early:
            comm.Barrier()
        if comm.rank == 1:
            with pytest.raises(ArgumentError, match=re.escape(says)):
                receive(comm, nonblocking)
        comm.Barrier()
        assert comm.sendrecv(comm.rank, (comm.rank + 1) % 3, source=(comm.rank - 1) % 3) == (comm.rank - 1) % 3

    run(3, program)


def test_several_requests_say_which_of_them_failed() -> None:
    """As mpi4py over Open MPI: the class is ERR_IN_STATUS, and each Status has its own."""

    def program(comm: Communicator) -> None:
        for with_statuses in (True, False):
            if comm.rank == 0:
                comm.Send(np.ones(4), 1, 1)
                comm.Send(np.ones(1), 1, 2)
                continue
            requests = [comm.Irecv(np.zeros(2), 0, 1), comm.Irecv(fits := np.zeros(1), 0, 2)]
            statuses: list[MPI.Status] | None = [] if with_statuses else None
            with pytest.raises(ArgumentError, match="rank 0 sent 4 x float64, tag 1") as caught:
                MPI.Request.Waitall(requests, statuses)
            assert caught.value.Get_error_class() == MPI.ERR_IN_STATUS
            assert (caught.value.rank, caught.value.call) == (0, "Irecv")
            assert [each.error for each in statuses or []] == [MPI.ERR_TRUNCATE, MPI.SUCCESS][: len(statuses or [])]
            assert fits[0] == 1
            assert requests == [MPI.REQUEST_NULL] * 2
        comm.Barrier()

    run(2, program)


def test_a_matched_message_that_does_not_fit_is_dropped() -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.Send(np.ones(4), 1)
        else:
            message = comm.Mprobe()
            with pytest.raises(ArgumentError, match=r"^Recv on rank 1: rank 0 sent 4 x float64") as caught:
                message.Recv(np.zeros(2))
            assert caught.value.Get_error_class() == MPI.ERR_TRUNCATE
            assert message == MPI.MESSAGE_NULL
        comm.Barrier()

    run(2, program)


@pytest.mark.parametrize("source", [0, MPI.ANY_SOURCE])
@pytest.mark.parametrize("count", [1, 100_000])
def test_a_persistent_receive_that_was_cancelled_is_started_again(source: int, count: int) -> None:
    def program(comm: Communicator) -> list[float]:
        found = []
        room = np.zeros(count)
        request = comm.Recv_init(room, source, 5)
        for turn in range(3):
            if comm.rank == 0:
                comm.Barrier()
                comm.Send(np.full(count, 1.0 + turn), 1, 5)
                continue
            for _ in range(2):
                request.Start()
                request.Cancel()
                request.Wait(status := MPI.Status())
                assert status.Is_cancelled()
            request.Start()
            comm.Barrier()
            request.Wait(status)
            assert not status.Is_cancelled()
            assert status.Get_source() == 0
            found.append(room[-1])
        return found

    assert run(2, program) == [[], [1, 2, 3]]


@pytest.fixture
def single_threaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are threads here; in processes of their own they have no others."""
    monkeypatch.setattr(matching, "other_threads", lambda: False)


@pytest.mark.usefixtures("single_threaded")
def test_receiving_from_who_waits_in_a_collective_is_an_error() -> None:
    errors = failures(3, lambda comm: comm.Recv(np.zeros(1), source=1) if comm.rank == 0 else comm.Barrier())
    for error in errors:
        assert "rank 1 sends nothing before this rank joins its Barrier" in str(error)


@pytest.mark.usefixtures("single_threaded")
def test_receiving_from_anybody_when_all_wait_in_a_collective_is_an_error() -> None:
    errors = failures(3, lambda comm: comm.recv() if comm.rank == 0 else comm.Barrier())
    assert "rank 1 sends nothing" in str(errors[0])
    assert "rank 2 sends nothing" in str(errors[0])


@pytest.mark.usefixtures("single_threaded")
def test_receiving_what_was_never_sent_to_oneself_is_an_error() -> None:
    (error,) = failures(1, lambda comm: comm.recv(source=0))
    assert "this rank has sent itself no such message" in str(error)


def test_what_is_kept_for_later_grows_for_a_receive_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit keeps senders from filling the memory of a rank that waits for others, not from arriving at all."""
    monkeypatch.setattr(matching, "HELD_BYTES", 1 << 20)

    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            for _ in range(100):
                comm.Send(np.zeros(1 << 20, np.uint8), 1, tag=1)
            comm.Send(np.zeros(1), 1, tag=2)
        else:
            comm.Recv(np.zeros(1), 0, tag=2)
            for _ in range(100):
                comm.Recv(np.empty(1 << 20, np.uint8), 0, tag=1)
            assert held_bytes(comm) == 0

    run(2, program)


def test_a_collective_is_made_behind_messages_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call of the sender lies behind messages that cannot come in while the receiver waits in that call."""
    monkeypatch.setattr(matching, "HELD_BYTES", 1 << 20)

    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            for _ in range(100):
                comm.Send(np.zeros(1 << 20, np.uint8), 1, tag=1)
        comm.Barrier()

    run(2, program)


def test_a_flood_from_one_rank_stays_there_while_another_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "HELD_BYTES", 1 << 20)

    def program(comm: Communicator) -> int:
        if comm.rank == 1:
            for number in range(40):
                comm.Send(np.full(1 << 20, number, np.uint8), 0, tag=1)
        elif comm.rank == 2:
            comm.recv(source=0)
            comm.Send(np.zeros(1), 0, tag=2)
        else:
            first = np.zeros(1 << 20, np.uint8)
            comm.Recv(first, 1)
            comm.send("go", 2)
            comm.Recv(np.zeros(1), 2)
            for number in range(1, 40):
                comm.Recv(first, 1)
                assert (first == number).all()
            return held_bytes(comm)
        return 0

    assert run(3, program)[0] == 0


def test_a_message_that_there_is_no_memory_to_keep_comes_when_it_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first message takes all memory for messages that nobody waits for; the second is received before it."""
    monkeypatch.setattr(matching, "HELD_BYTES", 1 << 20)

    def program(comm: Communicator) -> list[int]:
        sizes = {1: 1 << 20, 2: 1 << 18}
        if comm.rank == 1:
            for tag, size in sizes.items():
                comm.Send(np.full(size, tag, np.uint8), 0, tag)
            comm.send("both are announced", 2)
            return []
        if comm.rank == 2:
            comm.send(comm.recv(source=1), 0)
            return []
        received = []
        comm.recv(source=2)
        for tag in (2, 1):
            place = np.zeros(sizes[tag], np.uint8)
            comm.Recv(place, 1, tag)
            received.append(int(place.min()))
        return received

    assert run(3, program)[0] == [2, 1]


def test_sending_to_who_has_left_is_an_error() -> None:
    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank == 1:
            comm.Free()
        else:
            while True:
                comm.Send(np.zeros(1_000_000), 1)

    ranks = Ranks(2, program)
    assert ranks.errors[1] is None
    assert isinstance(ranks.errors[0], CommError)
    assert "Send on rank 0: rank 1" in str(ranks.errors[0])
