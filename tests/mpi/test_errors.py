"""Whatever goes wrong on one rank becomes an error on every rank, soon, that names the rank and the call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pickle import PicklingError
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.collectives import messages
from softnic.comm import matching
from softnic.comm.errors import ArgumentError, CommError
from softnic.mpi.communicator import Communicator
from tests.daemon.nics import TOLD_S
from tests.mpi.connections import send_control_bytes, vanish
from tests.mpi.ranks import Ranks, communicators, failures, run

SIZE = 4
ODD = 2
"""The rank that does something else."""
Program = Callable[[Communicator], Any]


def zeros(count: int = 100, dtype: Any = np.float32) -> Any:
    return np.zeros(count, dtype)


# name of the call: what the odd rank calls, what the others call, what the error must say.
MISMATCHES: dict[str, tuple[Program, Program, str]] = {
    "count": (
        lambda c: c.Allreduce(MPI.IN_PLACE, zeros(104)),
        lambda c: c.Allreduce(MPI.IN_PLACE, zeros(100)),
        "104 x float32",
    ),
    "dtype": (
        lambda c: c.Allreduce(MPI.IN_PLACE, zeros(dtype=np.int32)),
        lambda c: c.Allreduce(MPI.IN_PLACE, zeros()),
        "100 x int32",
    ),
    "op": (
        lambda c: c.Allreduce(MPI.IN_PLACE, zeros(), op=MPI.MAX),
        lambda c: c.Allreduce(MPI.IN_PLACE, zeros(), op=MPI.SUM),
        "op=MAX",
    ),
    "codec": (
        lambda c: c.Allreduce_comp(MPI.IN_PLACE, zeros(), codec="bounded:9"),
        lambda c: c.Allreduce_comp(MPI.IN_PLACE, zeros(), codec="bounded:10"),
        "codec=bounded:9",
    ),
    "compressed or not": (
        lambda c: c.Allreduce_comp(MPI.IN_PLACE, zeros(), codec="raw"),
        lambda c: c.Allreduce(MPI.IN_PLACE, zeros()),
        "Allreduce_comp(",
    ),
    "root": (lambda c: c.Bcast(zeros(), root=1), lambda c: c.Bcast(zeros(), root=0), "root=1"),
    "recvcounts": (
        lambda c: c.Reduce_scatter(zeros(), zeros(), [10, 40, 10, 40]),
        lambda c: c.Reduce_scatter(zeros(), zeros(), [40, 10, 40, 10]),
        "counts=[10, 40, 10, 40]",
    ),
    "call": (lambda c: c.Barrier(), lambda c: c.Allreduce(MPI.IN_PLACE, zeros()), "Barrier("),
    "object call": (lambda c: c.allgather(1), lambda c: c.bcast(1), "allgather("),
    "large count": (
        lambda c: c.Allreduce(MPI.IN_PLACE, zeros(3_000_001)),
        lambda c: c.Allreduce(MPI.IN_PLACE, zeros(3_000_000)),
        "3000001 x float32",
    ),
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_ranks_that_call_different_things_all_learn_of_it(what: str) -> None:
    odd, others, says = MISMATCHES[what]
    began = time.monotonic()

    def program(comm: Communicator) -> None:
        odd(comm) if comm.rank == ODD else others(comm)
        comm.Barrier()  # ranks that exchange nothing with the odd one learn of it here

    errors = failures(SIZE, program)
    assert time.monotonic() - began < TOLD_S
    for error in errors:
        assert isinstance(error, MPI.Exception)
        assert f"rank {ODD}" in str(error)
        assert says in str(error)


def test_a_mismatch_ends_the_communicator() -> None:
    def program(comm: Communicator) -> str:
        with pytest.raises(MPI.Exception):
            comm.Allreduce(MPI.IN_PLACE, zeros(10 + comm.rank))
        with pytest.raises(MPI.Exception, match=r"Barrier on rank \d: the communicator is no more: Allreduce on rank"):
            comm.Barrier()
        return "done"

    assert run(3, program) == ["done"] * 3


WRONG: dict[str, tuple[Program, str]] = {
    "unknown codec": (lambda c: c.Allreduce_comp(MPI.IN_PLACE, zeros(), codec="zip:9"), "zip"),
    "codec of a wrong kind": (lambda c: c.Bcast_comp(zeros(), codec=10), "'bounded:10' is expected"),
    "unknown algorithm": (
        lambda c: c.Allreduce_comp(MPI.IN_PLACE, zeros(), codec="bounded:10", algorithm="star"),
        "there are ring, direct, tree",
    ),
    "op": (lambda c: c.Allreduce(MPI.IN_PLACE, zeros(), op="SUM"), "an operation as MPI.SUM is expected"),  # type: ignore[arg-type]
    "op of complex": (lambda c: c.Allreduce(MPI.IN_PLACE, zeros(dtype=complex), MPI.MAX), "not defined for complex128"),
    "two lengths": (lambda c: c.Allreduce(zeros(4), zeros(5)), "4 elements, the receive buffer 5"),
    "two types": (lambda c: c.Allreduce(zeros(), zeros(dtype=int)), "float32, the receive buffer int64"),
    "root": (lambda c: c.Bcast(zeros(), root=SIZE), "root is 4"),
    "recvcounts": (lambda c: c.Reduce_scatter(zeros(), zeros(), [1, 2]), "4 integers"),
    "recvcounts' sum": (lambda c: c.Reduce_scatter(zeros(9), zeros(), [1, 2, 3, 4]), "recvcounts is for 10"),
    "no multiple": (lambda c: c.Allgather(zeros(1), zeros(5)), "no multiple of the 4 ranks"),
    "share": (lambda c: c.Allgather(zeros(2), zeros(4)), "a rank's share of the result is 1"),
    "strided": (lambda c: c.Allreduce(MPI.IN_PLACE, zeros()[::2]), "not contiguous"),
    "dest": (lambda c: c.Send(zeros(), dest=-7), "dest is -7"),
    "tag": (lambda c: c.Send(zeros(), dest=0, tag=-1), "tag is -1"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_refused_call_leaves_the_communicator_usable(what: str) -> None:
    """The other ranks wait meanwhile: this rank may make the call again, and has caught the error."""
    wrong, says = WRONG[what]

    def program(comm: Communicator) -> list[float]:
        if comm.rank == ODD:
            with pytest.raises(ArgumentError) as refused:
                wrong(comm)
            error = refused.value
            assert isinstance(error, ValueError)
            assert (error.rank, f"on rank {ODD}" in str(error), says in str(error)) == (ODD, True, True)
        data = np.full(3, comm.rank, np.float32)
        comm.Allreduce(MPI.IN_PLACE, data)
        assert not comm.ended
        return list(data)

    assert run(SIZE, program) == [[6.0] * 3] * SIZE


def test_a_rank_that_leaves_after_a_refused_call_says_why() -> None:
    def program(comm: Communicator) -> None:
        comm.Allreduce(MPI.IN_PLACE, zeros(), op="SUM" if comm.rank == ODD else MPI.SUM)  # type: ignore[arg-type]

    for rank, error in enumerate(failures(SIZE, program)):
        assert isinstance(error, CommError)
        assert error.rank == ODD
        assert f"Allreduce on rank {ODD}: op is 'SUM'" in str(error)
        assert isinstance(error, ArgumentError) == (rank == ODD)


def test_what_pickle_refuses_leaves_the_communicator_usable() -> None:
    def program(comm: Communicator) -> list[int]:
        if comm.rank == 1:
            with pytest.raises((AttributeError, PicklingError)):
                comm.allgather(lambda: 0)
            with pytest.raises(TypeError, match="missing"):
                comm.Allreduce(zeros())  # type: ignore[call-arg]
        return comm.allgather(comm.rank)

    assert run(3, program) == [[0, 1, 2]] * 3


@pytest.mark.parametrize("count", [100, 1_000_000])
@pytest.mark.parametrize("waits", [False, True])
def test_a_message_that_does_not_fit_is_dropped(count: int, waits: bool) -> None:
    """Also a long one, whether it waits for its receive or the other way round."""

    def program(comm: Communicator) -> Any:
        if comm.rank == 0:
            if not waits:
                comm.recv(source=1)
            comm.Send(zeros(count), 1, tag=3)
            comm.Send(np.arange(5.0), 1, tag=3)
        else:
            if not waits:
                comm.send("go", 0)
            with pytest.raises(ArgumentError, match=f"rank 0 sent {count} x float32, tag 3: the receive buffer") as one:
                comm.Recv(zeros(count - 1), 0, 3)
            assert one.value.rank == 0
            comm.Recv(data := np.zeros(5), 0, 3)
            return list(data)
        return comm.rank

    assert run(2, program) == [0, [0, 1, 2, 3, 4]]


def test_a_receive_from_this_rank_itself_without_a_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "other_threads", lambda: False)

    def program(comm: Communicator) -> None:
        with pytest.raises(ArgumentError, match="this rank has sent itself no such message"):
            comm.recv(source=comm.rank)
        comm.Barrier()

    run(2, program)


@pytest.mark.parametrize("call", [
    lambda c: c.Allreduce(MPI.IN_PLACE, zeros(2_000_000)),
    lambda c: c.Allreduce_comp(MPI.IN_PLACE, zeros(2_000_000)),
    lambda c: c.Reduce(zeros(2_000_000), zeros(2_000_000), root=1),
    lambda c: c.Bcast(zeros(2_000_000), root=ODD),  # another root may be done before it hears of it
    lambda c: c.Barrier(),
    lambda c: c.allgather("x"),
    lambda c: c.Recv(zeros(), source=ODD),
])  # fmt: skip
def test_a_dead_rank_is_an_error_for_all_others(call: Program) -> None:
    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank == ODD:
            vanish(comm)
            raise CommError("dead")
        call(comm)

    began = time.monotonic()
    errors = failures(SIZE, program)
    assert time.monotonic() - began < TOLD_S
    for rank, error in enumerate(errors):
        if rank != ODD:
            assert isinstance(error, CommError)
            assert error.rank == ODD
            assert f"rank {ODD} is gone" in str(error)
            assert f"{error.call} on rank {rank}" in str(error)


def test_a_rank_that_dies_amid_a_transfer() -> None:
    """It has entered the call, and sent its part of the data for a while."""

    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank == ODD:
            comm.Iallreduce(MPI.IN_PLACE, zeros(2_000_000))
            vanish(comm)
            raise CommError("dead")
        comm.Iallreduce(MPI.IN_PLACE, zeros(2_000_000)).Wait()

    errors = failures(SIZE, program)
    assert all(isinstance(error, CommError) for error in errors)
    assert [getattr(error, "rank", None) for rank, error in enumerate(errors) if rank != ODD] == [ODD] * (SIZE - 1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.Allreduce(MPI.IN_PLACE, zeros()), f"rank {ODD} has left without Allreduce(100 x float32, op=SUM)"),
        (lambda c: c.Recv(zeros(), ODD), f"rank {ODD} has left without sending such a message"),
        (lambda c: c.bcast(None, root=ODD), f"rank {ODD} has left without bcast("),
    ],
)
def test_a_rank_that_leaves_too_early(call: Program, says: str) -> None:
    errors = failures_but(ODD, lambda comm: comm.Free() if comm.rank == ODD else call(comm), after_barrier=True)
    for error in errors:
        assert says in str(error)


def failures_but(quiet: int, program: Program, *, after_barrier: bool = False) -> list[BaseException]:
    """The errors of all ranks but one, which has none."""

    def whole(comm: Communicator) -> None:
        if after_barrier:
            comm.Barrier()
        program(comm)

    ranks = Ranks(SIZE, whole)
    assert ranks.errors[quiet] is None
    found = [error for rank, error in enumerate(ranks.errors) if rank != quiet and error is not None]
    assert len(found) == SIZE - 1
    return found


def test_leaving_in_order_disturbs_nobody() -> None:
    """A rank that is done with its last call goes, while the others are still in it."""

    def program(comm: Communicator) -> bytes:
        data = np.full(500_000, comm.rank, np.float32)
        comm.Bcast(data, root=0)
        comm.Allreduce(MPI.IN_PLACE, data)
        comm.Free()
        return data.tobytes()

    assert len(set(run(5, program))) == 1


def test_a_rank_that_ends_without_a_word_after_its_last_call_disturbs_nobody_in_it() -> None:
    """As processes do that end by os._exit: multiprocessing's, for one. The next call is an error."""

    def program(comm: Communicator) -> float:
        data = np.full(500_000, 1, np.float32)
        comm.Allreduce(MPI.IN_PLACE, data)
        if comm.rank == ODD:
            vanish(comm)
        return float(data[-1])

    assert run(SIZE, program) == [SIZE] * SIZE


def test_abort_ends_every_rank() -> None:
    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank == 1:
            comm.Abort(3)
        comm.Barrier()

    errors = failures(3, program)
    assert isinstance(errors[1], SystemExit)
    assert errors[1].code == 3
    assert all("Abort(3) on rank 1" in str(errors[rank]) for rank in (0, 2))


def test_no_call_after_free() -> None:
    comm = communicators(1)[0]
    comm.Barrier()
    comm.Free()
    assert comm.ended
    with pytest.raises(CommError, match="Barrier on rank 0: the communicator is no more: it was freed"):
        comm.Barrier()


@pytest.mark.parametrize("garbage", [b"\x04\0\0\0\xff\xff\xff\xff", b"\xff\xff\xff\xff", b"\x01\0\0\0\x90"])
def test_nonsense_on_a_control_connection(garbage: bytes) -> None:
    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank == 0:
            send_control_bytes(comm, garbage)
        comm.Barrier()
        comm.Barrier()

    for error in failures(3, program)[1:]:
        assert isinstance(error, CommError)
        assert "rank 0 sent nonsense" in str(error)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_does_not_speak_for_its_parent() -> None:
    """Nor does its end, which leaves all communicators, disturb the parent's."""

    def program(comm: Communicator) -> str:
        comm.Barrier()
        said = ""
        if comm.rank == 0:
            reader, writer = os.pipe()
            if (child := os.fork()) == 0:
                try:
                    comm.Barrier()
                except CommError as error:
                    os.write(writer, str(error).encode())
                comm.Free()
                os._exit(0)
            os.close(writer)
            os.waitpid(child, 0)
            said = os.read(reader, 1000).decode()
            os.close(reader)
        comm.Barrier()
        return said

    assert "the connections belong to the process that this one was forked from" in run(2, program)[0]


def test_calls_that_differ_are_said_once_and_by_all_ranks_alike() -> None:
    one, two = "Allreduce(10 x float32, op=SUM)", "Allreduce(11 x float32, op=SUM)"
    errors = failures(2, lambda comm: comm.Allreduce(zeros(10 + comm.rank), zeros(10 + comm.rank)))
    for rank, error in enumerate(errors):
        assert str(error) == f"Allreduce on rank {rank}: mismatched call: rank 0 called {one}, rank 1 {two}"


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        ({1: "B", 0: "A"}, "rank 0 called A, rank 1 B"),
        ({0: "A", 1: "B", 2: "A"}, "ranks 0, 2 called A, rank 1 B"),
        ({3: "rank 3 B", 2: "A", 11: "rank 3 B"}, "rank 2 called A, ranks 3, 11 rank 3 B"),
        ({2: "C", 0: "nothing", 1: "A"}, "rank 0 called nothing, rank 1 A, rank 2 C"),
    ],
)
def test_calls_are_named_with_their_ranks(calls: dict[int, str], text: str) -> None:
    assert messages.mismatched(calls) == f"mismatched call: {text}"
