"""Messages in progress: all modes of sending, requests of messages and of several kinds, probes, and threads."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from softnic import MPI, codecs
from softnic.comm.errors import ArgumentError, CommError
from softnic.mpi.communicator import Communicator
from tests.mpi.connections import held_bytes, send_credit
from tests.mpi.groups import FakeNics, total, values
from tests.mpi.ranks import Ranks, failures, gradient, run

COUNTS = [0, 3, 40_000, 700_001]
"""Elements of an empty message, inline ones, and one in several chunks."""


def ring(comm: Communicator) -> tuple[int, int]:
    """The next rank and the previous one."""
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("mode", ["Isend", "Issend", "Ibsend", "Irsend"])
@pytest.mark.parametrize("size", [1, 3])
def test_messages_in_progress_in_every_mode(mode: str, count: int, size: int) -> None:
    def program(comm: Communicator) -> None:
        right, left = ring(comm)
        comm.Attach_buffer(MPI.BUFFER_AUTOMATIC)
        data, status = np.full(count + 1, -1.0), [MPI.Status() for _ in range(2)]
        sent = np.full(count, float(comm.rank))
        requests = [comm.Irecv(data, left, 7), getattr(comm, mode)(sent, right, 7)]
        assert MPI.Request.Waitall(requests, status)
        assert requests == [MPI.REQUEST_NULL] * 2
        assert (data[:-1] == left).all()
        assert data[-1] == -1
        assert (status[0].source, status[0].tag, status[0].Get_count(MPI.DOUBLE)) == (left, 7, count)
        assert (status[1].source, status[1].count) == (MPI.ANY_SOURCE, 0)
        comm.Detach_buffer()

    run(size, program)


def test_a_window_of_messages_arrives_in_order() -> None:
    def program(comm: Communicator) -> None:
        arrays = [np.full(50_000, number, np.int32) for number in range(40)]
        if comm.rank == 0:
            MPI.Request.Waitall([comm.Isend(array, 1, 1) for array in arrays])
            assert comm.recv(source=1) == "all"
        else:
            places = [np.empty(50_000, np.int32) for _ in arrays]
            MPI.Request.Waitall([comm.Irecv(place, 0, 1) for place in places])
            for place, array in zip(places, arrays, strict=True):
                assert (place == array).all()
            assert held_bytes(comm) == 0
            comm.send("all", 0)

    run(2, program)


def test_a_synchronous_send_waits_for_its_receive() -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            requests = [comm.issend(tag, 1, tag) for tag in (1, 2)]
            assert comm.recv(source=1) == "two is received"
            assert not requests[0].Test()
            requests[1].Wait()
            comm.send("go on", 1, 3)
            requests[0].Wait()
        else:
            assert comm.recv(source=0, tag=2) == 2
            comm.send("two is received", 0)
            assert comm.recv(source=0, tag=3) == "go on"
            assert comm.recv(source=0) == 1

    run(2, program)


def test_buffered_sends_are_limited_by_the_attached_buffer() -> None:
    def program(comm: Communicator) -> None:
        message = np.zeros(1 << 18, np.uint8)
        if comm.rank == 0:
            with pytest.raises(ArgumentError, match="no buffer is attached"):
                comm.Bsend(message, 1)
            buffer = bytearray(message.nbytes + MPI.BSEND_OVERHEAD)
            comm.Attach_buffer(buffer)
            with pytest.raises(ArgumentError, match="attached already"):
                comm.Attach_buffer(buffer)
            with pytest.raises(ArgumentError, match="the message takes"):
                comm.Bsend(np.zeros(message.size + 1, np.uint8), 1)
            comm.Bsend(message, 1)
            message[:] = 1
            comm.Iflush_buffer().Wait()
            comm.Bsend(message, 1)
            assert comm.Detach_buffer() is buffer
        else:
            for number in range(2):
                place = np.full_like(message, 9)
                comm.Recv(place, 0)
                assert (place == number).all()

    run(2, program)


@pytest.mark.parametrize("count", [3, 700_001])
def test_sending_and_receiving_at_once(count: int) -> None:
    def program(comm: Communicator) -> None:
        right, left = ring(comm)
        data, status = np.empty(count), MPI.Status()
        comm.Sendrecv(np.full(count, comm.rank * 1.0), right, 3, data, left, 3, status)
        assert (data == left).all()
        assert (status.source, status.tag) == (left, 3)
        comm.Sendrecv_replace(data, right, 4, left, 4)
        assert (data == ring(comm)[1] - 1 if left else data == comm.size - 1).all()
        comm.Isendrecv(np.full(count, 7.0), right, 0, data, left).Wait()
        comm.Isendrecv_replace(data, right, 0, left).Wait()
        assert (data == 7).all()
        assert comm.sendrecv({"rank": comm.rank}, right, source=left) == {"rank": left}
        comm.Sendrecv(None, MPI.PROC_NULL, 0, None, MPI.PROC_NULL, 0, status)
        assert status.source == MPI.PROC_NULL

    run(3, program)


def test_compressed_messages_in_progress() -> None:
    def program(comm: Communicator) -> None:
        right, left = ring(comm)
        for dtype in (np.float32, np.float64, np.int16):
            given = gradient(comm.rank, 3001).astype(dtype)
            data, status = np.empty(4000, dtype), MPI.Status()
            sending = comm.Isend_comp(given, right, codec="bounded:10")
            comm.Irecv_comp(data, left).Wait(status)
            sending.Wait()
            expected = gradient(left, 3001).astype(dtype)
            if dtype != np.int16:
                expected = codecs.get("bounded:10").roundtrip(expected.astype(np.float32)).astype(dtype)
            assert data[:3001].tobytes() == expected.tobytes()
            assert status.count == expected.nbytes

    run(2, program)


def test_probes_find_messages_and_matched_ones_take_them() -> None:
    def program(comm: Communicator) -> None:
        status = MPI.Status()
        if comm.rank == 0:
            for tag, count in ((1, 4), (2, 60_000), (3, 1)):
                comm.Send(np.full(count, float(tag)), 1, tag)
            comm.send([5], 1, 4)
            return
        assert comm.Probe(0, 2, status)
        assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (0, 2, 60_000)
        message = comm.Mprobe(tag=2)
        assert message
        assert not comm.Iprobe(0, 2)
        assert comm.Improbe(0, 9) is None
        place = np.empty(60_000)
        message.Irecv(place).Wait(status)
        assert message == MPI.MESSAGE_NULL
        assert (place == 2).all()
        assert status.tag == 2
        comm.Probe(0, 4)
        taken = MPI.Message.Iprobe(comm, 0, 4)
        assert taken is not None
        assert taken.recv() == [5]
        for tag, count in ((1, 4), (3, 1)):
            comm.Recv(place[:count], 0, tag)
            assert (place[:count] == tag).all()
        with pytest.raises(ArgumentError, match="MESSAGE_NULL"):
            message.Recv(place)
        assert comm.Mprobe(MPI.PROC_NULL) == MPI.MESSAGE_NO_PROC

    run(2, program)


def test_persistent_requests_start_again_and_again() -> None:
    def program(comm: Communicator) -> None:
        right, left = ring(comm)
        given, place = np.zeros(50_000), np.empty(50_000)
        requests = [comm.Ssend_init(given, right), comm.Recv_init(place, left)]
        for number in range(3):
            given[:] = comm.rank + 10 * number
            MPI.Prequest.Startall(requests)
            with pytest.raises(ArgumentError, match="it is active"):
                requests[0].Start()
            MPI.Request.Waitall(requests)
            assert all(requests)
            assert MPI.Request.Waitany(requests) == MPI.UNDEFINED
            assert (place == left + 10 * number).all()
        requests[0].Free()
        assert requests[0] == MPI.REQUEST_NULL
        assert MPI.Prequest.fromhandle(requests[1].handle) == requests[1]
        with pytest.raises(TypeError):
            MPI.Grequest(requests[1])

    run(2, program)


def test_a_receive_is_cancelled_before_its_message_is_found() -> None:
    def program(comm: Communicator) -> None:
        status, place = MPI.Status(), np.zeros(1)
        request = comm.Irecv(place, 1 - comm.rank, 5)
        request.Cancel()
        request.Wait(status)
        comm.Barrier()
        assert status.Is_cancelled()
        assert comm.sendrecv(comm.rank, 1 - comm.rank, 5, source=1 - comm.rank, recvtag=5) == 1 - comm.rank
        assert place == 0

    run(2, program)


def test_requests_of_messages_and_collectives_and_communicators_are_waited_for_together() -> None:
    nics, together = FakeNics(held=True), threading.Barrier(2)

    def program(comm: Communicator) -> None:
        place = np.empty(200_000)
        result = values(comm.rank)
        own = MPI.Grequest.Start()
        requests = [comm.Iallreduce(MPI.IN_PLACE, result), comm.Irecv(place, 1 - comm.rank), own]
        assert MPI.Request.Testany(requests) == (MPI.UNDEFINED, False)
        together.wait(30)
        sending = comm.Isend(np.full(200_000, comm.rank), 1 - comm.rank)
        with pytest.raises(ArgumentError, match="takes 200000 x float64"):
            MPI.Request.Waitany(requests)
        sending.Wait()
        sending = comm.Isend(np.full(200_000, comm.rank * 1.0), 1 - comm.rank)
        requests[1] = comm.Irecv(place, 1 - comm.rank)
        assert MPI.Request.Waitany(requests) == 1
        assert (place == 1 - comm.rank).all()
        own.complete("mine")
        assert MPI.Request.waitsome(requests) == ([2], ["mine"])
        together.wait(30)
        nics.release()
        MPI.Request.Waitall([*requests, sending])
        assert result.tobytes() == total(2).tobytes()

    run(2, program, nics)


def test_a_message_makes_progress_while_its_rank_waits_in_another_communicator() -> None:
    """The sender waits for the message, and the receiver for the sender, elsewhere."""

    def program(comm: Communicator) -> None:
        other = comm.Dup()
        place = np.empty(3_000_000, np.float32)
        if comm.rank == 0:
            receiving = comm.Irecv(place, 1)
            assert other.recv(source=1) == "sent"
            receiving.Wait()
            assert (place == 5).all()
        else:
            comm.Ssend(np.full_like(place, 5), 0)
            other.send("sent", 0)
        other.Free()

    run(2, program)


def test_threads_make_calls_on_a_communicator_at_the_same_time() -> None:
    def program(comm: Communicator) -> None:
        found: dict[int, Any] = {}

        def receive(tag: int) -> None:
            found[tag] = comm.recv(source=1 - comm.rank, tag=tag)

        threads = [threading.Thread(target=receive, args=(tag,)) for tag in range(4)]
        for thread in threads:
            thread.start()
        for tag in reversed(range(4)):
            comm.ssend(bytes(100_000 * tag), 1 - comm.rank, tag)
        for thread in threads:
            thread.join(30)
        assert {tag: len(data) for tag, data in found.items()} == {tag: 100_000 * tag for tag in range(4)}

    run(2, program)


def test_the_first_calls_of_two_threads() -> None:
    """One of them joins the other ranks; the other call waits for that."""

    def program(comm: Communicator) -> None:
        thread = threading.Thread(target=comm.Init)
        thread.start()
        result = values(comm.rank)
        comm.Allreduce(MPI.IN_PLACE, result)
        thread.join(30)
        assert result.tobytes() == total(3).tobytes()

    for _ in range(5):
        run(3, program)


def test_a_thread_receives_what_another_one_sends_to_its_own_rank() -> None:
    place, sent = np.zeros(1_000_000), np.arange(1_000_000.0)
    thread = threading.Thread(target=lambda: MPI.COMM_SELF.Recv(place, 0, 77))
    thread.start()
    MPI.COMM_SELF.Send(sent, 0, 77)
    thread.join(30)
    assert (place == sent).all()


def test_messages_are_awaited_in_event_loops() -> None:
    def program(comm: Communicator) -> None:
        async def each() -> Any:
            sending = comm.isend(bytes(1_000_000), 1 - comm.rank)
            received = await comm.irecv(source=1 - comm.rank)
            await sending
            return received

        assert asyncio.run(each()) == bytes(1_000_000)

    run(2, program)


def test_a_rank_that_leaves_fails_the_messages_that_wait_for_it() -> None:
    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank == 0:
            comm.Irecv(np.empty(1), 1).Wait()
        else:
            comm.Free()

    ranks = Ranks(2, program)
    assert ranks.errors[1] is None
    assert isinstance(ranks.errors[0], CommError)
    assert "rank 1 has left" in str(ranks.errors[0])


def test_a_message_that_was_not_sent_is_not_reported_as_received() -> None:
    def program(comm: Communicator) -> None:
        from softnic.comm import messages
        from tests.mpi.connections import send_control_bytes

        comm.Barrier()
        if comm.rank == 0:
            send_control_bytes(comm, messages.pack(messages.Taken(9)))
        comm.recv(source=1 - comm.rank)

    assert "the synchronous message 9, which was not sent" in str(failures(2, program)[1])


def test_credit_returns_for_inline_messages_received_by_requests() -> None:
    def program(comm: Communicator) -> None:
        other = 1 - comm.rank
        for _ in range(50):
            receiving = comm.Irecv(np.empty(8000), other)
            comm.Isend(np.zeros(8000), other).Wait()
            receiving.Wait()
        comm.Barrier()
        comm.sendrecv(None, other, source=other)
        assert send_credit(comm, other) > 100_000

    run(2, program)


def test_a_status_is_copied_and_pickled() -> None:
    status = MPI.Status()
    status.source, status.tag, status.error = 3, 4, MPI.ERR_OTHER
    status.Set_elements(MPI.INT, 5)
    status.Set_cancelled(True)
    for copy in (MPI.Status(status), pickle.loads(pickle.dumps(status))):
        assert (copy.source, copy.tag, copy.error, copy.count, copy.cancelled) == (3, 4, MPI.ERR_OTHER, 20, True)
        assert copy.Get_count(MPI.DOUBLE) == MPI.UNDEFINED
        assert copy == status
    status.tomemory()[0] = 8
    assert status.Get_source() == 8


def test_functions_of_a_generalized_request(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Any] = []
    request = MPI.Grequest.Start(
        lambda status, tag: status.Set_tag(tag),
        lambda *_: told.append("freed"),
        lambda done, _: told.append(done),
        (7,),
    )
    request.Cancel()
    assert not request.Test()
    request.complete([1])
    status = MPI.Status()
    assert request.wait(status) == [1]
    assert (status.tag, told) == (7, [False, "freed"])

    def fail(_: MPI.Status) -> None:
        raise KeyError("mine")

    request = MPI.Grequest.Start(fail)
    request.Complete()
    with pytest.raises(MPI.Exception, match="mine"):
        request.Wait()
    assert "KeyError" in capsys.readouterr().err
