"""Errors of what softnic.MPI does not have, and what mpi4py's own modules keep with a communicator."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.mpi import contexts, environment, type_constants
from softnic.mpi.communicator import Communicator
from softnic.mpi.contexts import _comm_lock as comm_lock
from softnic.mpi.contexts import _comm_lock_table as comm_lock_table
from softnic.mpi.contexts import _commctx_intra as commctx_intra
from softnic.mpi.environment import _addressof as addressof
from softnic.mpi.environment import _handleof as handleof
from softnic.mpi.environment import _sizeof as sizeof
from tests.mpi.ranks import run


@pytest.mark.parametrize(
    ("call", "alternative"),
    [
        (lambda: MPI.Win.Create(bytearray(8), comm=MPI.COMM_WORLD), "Isend and Irecv"),
        (lambda: MPI.Win.Allocate_shared(8), "multiprocessing.shared_memory"),
        (lambda: MPI.File.Open(MPI.COMM_WORLD, "file"), "numpy.memmap"),
        (lambda: MPI.FILE_NULL.Write_at_all(0, b""), "numpy.memmap"),
        (lambda: MPI.Session.Init(), "Create_group"),
        (lambda: MPI.COMM_SELF.Spawn("program", maxprocs=2), "softnic run -n N"),
        (lambda: MPI.COMM_SELF.Psend_init(b"", 1, 0), "Isend each partition"),
        (lambda: MPI.Register_datarep("external"), "no files"),
    ],
)
def test_the_error_names_the_alternative(call: Callable[[], Any], alternative: str) -> None:
    with pytest.raises(NotImplementedError, match=alternative) as raised:
        call()
    assert isinstance(raised.value, MPI.Exception)
    assert raised.value.Get_error_class() == MPI.ERR_UNSUPPORTED_OPERATION
    assert MPI.COMM_SELF.allgather(1) == [1]


@pytest.mark.parametrize("null", [MPI.WIN_NULL, MPI.FILE_NULL, MPI.SESSION_NULL])
def test_null_objects(null: Any) -> None:
    assert not null
    assert null == type(null)()
    assert null != MPI.COMM_NULL
    assert copy.copy(null) is null
    assert pickle.loads(pickle.dumps(null)) is null


def test_what_is_kept_with_a_communicator() -> None:
    comm = MPI.COMM_SELF.Dup()
    lock = comm_lock(comm, "send")
    assert comm_lock(comm, "send") is lock
    assert comm_lock(comm, "recv") is not lock
    assert set(comm_lock_table(comm)) == {"send", "recv"}
    duplicate, tag = commctx_intra(comm)
    again, next_tag = commctx_intra(comm)
    assert duplicate is again
    assert duplicate.Compare(comm) == MPI.CONGRUENT
    assert next_tag == tag + 1
    comm.Free()
    assert not duplicate


def test_private_names_that_mpi4pys_modules_and_tests_take_from_mpi() -> None:
    locks = ("_comm_lock", "_comm_lock_table", "_commctx_inter", "_commctx_intra")
    handles = ("_addressof", "_handleof", "_set_abort_status", "_sizeof")
    types = ("_typealign", "_typecode", "_typedict", "_typedict_c", "_typedict_f")
    for module, names in ((contexts, locks), (environment, handles), (type_constants, types)):
        assert [getattr(MPI, name) for name in names] == [getattr(module, name) for name in names]


def test_sizes_and_addresses_of_handles() -> None:
    assert sizeof(MPI.Comm) == sizeof(MPI.COMM_WORLD) > 0
    assert addressof(MPI.INT) != addressof(MPI.FLOAT)
    assert handleof(MPI.COMM_WORLD) == MPI.COMM_WORLD.handle
    for function in (sizeof, addressof, handleof):
        with pytest.raises(TypeError, match="an object of MPI is expected"):
            function(None)


def test_no_rank_is_lost_to_go_on_without() -> None:
    comm = MPI.COMM_SELF.Dup()
    flag = np.array([5], np.intc)
    comm.Iagree(flag).Wait()
    assert (comm.Agree(5), flag[0], comm.Ack_failed(), comm.Is_revoked()) == (5, 5, 0, False)
    assert comm.Get_failed() == MPI.GROUP_EMPTY
    for smaller in (comm.Shrink(), comm.Ishrink()[0]):
        assert smaller.Compare(comm) == MPI.CONGRUENT
        smaller.Free()
    with pytest.raises(ValueError, match="one integer of C"):
        comm.Iagree(bytearray(8))
    comm.Free()


def test_ranks_agree_around_other_calls() -> None:
    def program(comm: Communicator) -> Any:
        flag = np.array([0b1011 if comm.rank == 0 else 0b1101], np.intc)
        if comm.rank != 0:
            comm.Barrier()
        request = comm.Iagree(flag)
        if comm.rank == 0:
            assert not request.Test()
            comm.Barrier()
        request.Wait()
        return int(flag[0])

    assert run(3, program) == [0b1001] * 3
