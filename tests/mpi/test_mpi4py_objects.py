"""Arguments and objects of softnic.MPI that behave as mpi4py's."""

from __future__ import annotations

import copy
import operator
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.comm.errors import ArgumentError, CommError
from softnic.mpi.communicator import Communicator
from tests.mpi.groups import FakeNics, values
from tests.mpi.ranks import failures, gradient, run

# -- messages ----------------------------------------------------------------------------------------------------------


def test_the_arguments_of_recv_are_in_mpi4pys_order() -> None:
    def program(comm: Communicator) -> Any:
        status, space = MPI.Status(), bytearray(100)
        if comm.rank == 0:
            comm.send("first", 1, 5)
            comm.send("second", 1, 6)
            return None
        second = comm.recv(None, 0, 6, status)
        with pytest.warns(UserWarning, match="recv needs no buffer"):
            return second, comm.recv(space), status.Get_tag()

    assert run(2, program)[1] == ("second", "first", 6)


def test_the_size_of_a_buffer_in_the_place_of_recvs_buffer_changes_nothing() -> None:
    def program(comm: Communicator) -> Any:
        comm.send(comm.rank, 1 - comm.rank)
        return comm.recv(4096)

    assert run(2, program) == [1, 0]


@pytest.mark.parametrize("buffer", [None, [None, 0, MPI.BYTE], 5])
def test_with_proc_null_no_other_argument_matters(buffer: Any) -> None:
    def program(comm: Communicator) -> None:
        status = MPI.Status()
        comm.Send(buffer, MPI.PROC_NULL)
        comm.Send_comp(buffer, MPI.PROC_NULL)
        comm.send(buffer, MPI.PROC_NULL)
        for receive in (comm.Recv, comm.Recv_comp):
            status.fill(3, 3, 3)
            receive(buffer, MPI.PROC_NULL, status=status)
            assert (status.Get_source(), status.Get_tag(), status.Get_count()) == (MPI.PROC_NULL, MPI.ANY_TAG, 0)
        assert comm.recv(source=MPI.PROC_NULL, status=status) is None

    run(1, program)


def test_an_empty_message_without_a_buffer() -> None:
    def program(comm: Communicator) -> int:
        status = MPI.Status()
        if comm.rank == 0:
            comm.Send([None, 0, MPI.BYTE], 1)
        else:
            comm.Recv([None, 0, MPI.BYTE], 0, status=status)
        return status.Get_count()

    assert run(2, program) == [0, 0]


@pytest.mark.parametrize(("sent", "received"), [(MPI.INT, MPI.BYTE), (MPI.BYTE, MPI.INT), (MPI.DOUBLE, MPI.BYTE)])
def test_bytes_fit_any_type(sent: Any, received: Any) -> None:
    def program(comm: Communicator) -> None:
        data, room = np.arange(3, dtype=sent.dtype), bytearray(32)
        status = MPI.Status()
        if comm.rank == 0:
            comm.Send([data, sent], 1)
        else:
            comm.Recv([room, received], 0, status=status)
            assert bytes(room) == data.tobytes().ljust(32, b"\0")
            assert status.Get_count(MPI.BYTE) == data.nbytes

    run(2, program)


def test_bytes_that_do_not_fit_are_refused() -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.Send(np.arange(3, dtype=np.intc), 1)
        else:
            comm.Recv([bytearray(11), MPI.BYTE], 0)
        comm.Barrier()

    errors = failures(2, program)
    assert any("rank 0 sent 3 x int32, tag 0: the receive buffer takes 11 x uint8" in str(error) for error in errors)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_compressed_floats_are_received_as_bytes(dtype: Any) -> None:
    def program(comm: Communicator) -> bytes:
        data = (100 * gradient(0, 40)).astype(dtype)
        typed, room = np.zeros(40, dtype), bytearray(data.nbytes)
        if comm.rank == 0:
            comm.Send_comp(data, 1, codec="bounded:8")
            comm.Send_comp(data, 1, codec="bounded:8")
        else:
            comm.Recv_comp(typed, 0)
            comm.Recv_comp([room, MPI.BYTE], 0)
            assert bytes(room) == typed.tobytes()
            assert typed.any()
        return b""

    run(2, program)


def test_a_count_that_is_not_whole_is_undefined() -> None:
    status = MPI.Status()
    status.fill(0, 0, 3)
    assert status.Get_count(MPI.INT) == MPI.UNDEFINED
    assert (status.Get_count(), status.Get_count(MPI.CHAR), status.Get_count(MPI.BYTE)) == (3, 3, 3)
    status.fill(0, 0, 12)
    assert status.Get_count(MPI.INT) == 3


# -- objects -----------------------------------------------------------------------------------------------------------


def longest(left: str, right: str) -> str:
    return max(left, right, key=len)


class Concatenation:
    def __call__(self, left: str, right: str) -> str:
        return left + right


@pytest.mark.parametrize(
    ("op", "expected"), [(longest, "ccc"), (operator.add, "abbccc"), (lambda a, _: a, "a"), (Concatenation(), "abbccc")]
)
def test_objects_are_reduced_by_any_function(op: Callable[[str, str], str], expected: str) -> None:
    def program(comm: Communicator) -> Any:
        mine = "abc"[comm.rank] * (comm.rank + 1)
        return comm.allreduce(mine, op=op), comm.reduce(mine, op, 1)

    assert run(3, program) == [(expected, None), (expected, expected), (expected, None)]


def test_ranks_that_reduce_by_different_functions() -> None:
    errors = failures(2, lambda comm: comm.allreduce("x", longest if comm.rank else operator.add))
    assert all("op=longest" in str(error) for error in errors)


def test_buffers_are_reduced_by_mpis_operations_only() -> None:
    errors = failures(1, lambda comm: comm.Allreduce(MPI.IN_PLACE, np.zeros(3), longest))  # type: ignore[arg-type]
    assert "an operation as MPI.SUM is expected" in str(errors[0])


@pytest.mark.parametrize("name", ["SUM", "PROD", "MAX", "MIN", "AVG", "INT", "BFLOAT16", "DOUBLE", "IN_PLACE"])
def test_constants_are_themselves_when_they_were_pickled_or_copied(name: str) -> None:
    constant = getattr(MPI, name)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(constant, protocol)) is constant
    assert copy.deepcopy([constant])[0] is constant
    assert copy.copy(constant) is constant


# -- communicators -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: MPI.Intracomm(MPI.COMM_NULL), MPI.Intracomm, lambda: MPI.Comm(None)])
def test_a_communicator_of_nothing_is_null(make: Callable[[], Communicator]) -> None:
    null = make()
    assert null == MPI.COMM_NULL
    assert null == MPI.COMM_NULL
    assert null == make()
    assert not null
    assert null != MPI.COMM_SELF
    assert repr(null) == "<Communicator: MPI.COMM_NULL>"
    for use in (lambda: null.rank, null.Get_size, null.Barrier, lambda: null.allreduce(1), null.Dup):
        with pytest.raises(MPI.Exception, match=r"MPI\.COMM_NULL has no ranks"):
            use()


def test_a_communicator_of_another_is_the_same_one() -> None:
    def program(comm: Communicator) -> None:
        again = MPI.Intracomm(comm)
        assert again == comm
        with pytest.raises(TypeError, match="unhashable"):  # as in mpi4py
            hash(again)
        assert again != MPI.COMM_SELF
        assert again.allreduce(1) == comm.allreduce(1) == 2
        again.Free()
        assert comm == MPI.COMM_NULL

    run(2, program)


def test_a_freed_communicator_is_null_and_says_that_it_was_freed() -> None:
    def program(comm: Communicator) -> None:
        again = comm.Dup(None)
        assert again
        assert again != MPI.COMM_NULL
        assert again != comm
        again.Free()
        assert not again
        assert again == MPI.COMM_NULL
        with pytest.raises(CommError, match="Barrier on rank 0: the communicator is no more: it was freed"):
            again.Barrier()
        assert comm.allreduce(1) == 1

    run(1, program)


def test_an_error_leaves_a_communicator_that_is_not_null() -> None:
    def program(comm: Communicator) -> None:
        with pytest.raises(ArgumentError):
            comm.Bcast(None)
        assert comm
        assert comm != MPI.COMM_NULL

    run(1, program)


# -- texts and names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["isent", "Ireceive", "call", "chosen", "world"])
def test_a_method_that_there_is_not_is_no_private_one(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(MPI.COMM_SELF, name)
    text = "".join(traceback.format_exception(caught.value))
    assert f"softnic's communicators have no {name}" in text.splitlines()[-1]
    assert "'_" not in text.splitlines()[-1]


@pytest.mark.parametrize("thing", [MPI.COMM_SELF, MPI.REQUEST_NULL, MPI.Status(), MPI.COMM_SELF.Get_group()])
def test_private_names_are_not_listed(thing: Any) -> None:
    assert "__init__" in dir(thing)
    assert not [name for name in dir(thing) if name.startswith("_") and not name.endswith("__")]


def test_waiting_for_some_requests_by_small_letters() -> None:
    nics = FakeNics(held=True)

    def program(comm: Communicator) -> None:
        requests = [comm.Iallreduce(MPI.IN_PLACE, values(comm.rank)) for _ in range(2)]
        assert MPI.Request.testsome(requests) == ([], [])
        comm.Barrier()
        nics.release(1)
        assert MPI.Request.waitsome(requests) == ([0], [None])
        comm.Barrier()
        nics.release()
        MPI.Request.Waitall(requests)
        assert MPI.Request.waitsome(requests) == (None, None)
        assert MPI.Request.testsome(requests) == (None, None)

    run(2, program, nics)
