"""Errors, their handlers, attributes, info, names and pickling, as mpi4py has them."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.comm.errors import ArgumentError, CommError
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run

# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_is_made_of_a_code_and_compares_as_one() -> None:
    error = MPI.Exception(MPI.ERR_TRUNCATE)
    assert (error.Get_error_code(), error.error_class, int(error)) == (MPI.ERR_TRUNCATE,) * 3
    assert str(error) == error.error_string == MPI.Get_error_string(MPI.ERR_TRUNCATE) != ""
    assert repr(error) == f"MPI.Exception({MPI.ERR_TRUNCATE})"
    assert error == MPI.ERR_TRUNCATE == MPI.Exception(MPI.ERR_TRUNCATE)
    assert MPI.SUCCESS < error < MPI.ERR_LASTCODE
    assert not MPI.Exception(MPI.SUCCESS)
    assert MPI.Exception(-1) == MPI.ERR_UNKNOWN


WRONG: dict[int, Callable[[Communicator], Any]] = {
    MPI.ERR_RANK: lambda comm: comm.Send(np.zeros(1), dest=7),
    MPI.ERR_ROOT: lambda comm: comm.Bcast(np.zeros(1), root=7),
    MPI.ERR_TAG: lambda comm: comm.Send(np.zeros(1), dest=0, tag=-5),
    MPI.ERR_COUNT: lambda comm: comm.Reduce_scatter(np.zeros(2), np.zeros(1), [1, 2, 3]),
    MPI.ERR_KEYVAL: lambda comm: comm.Get_attr(MPI.KEYVAL_INVALID),
    MPI.ERR_COMM: lambda _: MPI.COMM_WORLD.Free(),
    MPI.ERR_ERRHANDLER: lambda comm: comm.Set_errhandler(MPI.ERRHANDLER_NULL),
    MPI.ERR_DIMS: lambda comm: comm.Create_cart([3]),
    MPI.ERR_TOPOLOGY: lambda comm: comm.Create_graph([1], [0, 0]),
}


@pytest.mark.parametrize("code", WRONG, ids=MPI.Get_error_string)
def test_refused_calls_have_their_class(code: int) -> None:
    comm = MPI.COMM_SELF.Dup()
    with pytest.raises(ArgumentError) as refused:
        WRONG[code](comm)
    assert refused.value.Get_error_class() == code
    assert comm.allreduce(1) == 1
    comm.Free()


def test_a_message_that_does_not_fit_has_its_class() -> None:
    def program(comm: Communicator) -> int:
        comm.Send(np.zeros(3), comm.rank)
        with pytest.raises(MPI.Exception) as wrong:
            comm.Recv(np.zeros(2), comm.rank)
        return wrong.value.Get_error_class()

    assert run(1, program) == [MPI.ERR_TRUNCATE]


READ_ONLY = np.zeros(1)
READ_ONLY.flags.writeable = False
REFUSED: dict[type[Exception], Any] = {TypeError: object(), KeyError: [np.zeros(1), "none"], BufferError: READ_ONLY}


@pytest.mark.parametrize("also", REFUSED)
def test_a_refused_argument_stays_what_it_was(also: type[Exception]) -> None:
    with pytest.raises(also, match="Allgather on rank 0: ") as refused:
        MPI.COMM_SELF.Allgather(np.zeros(1), REFUSED[also])
    assert isinstance(refused.value, ArgumentError)
    assert MPI.COMM_SELF.allgather(5) == [5]


@pytest.mark.parametrize("also", REFUSED)
def test_what_an_argument_itself_raises_stays_what_it_was(also: type[Exception]) -> None:
    """A ValueError of the program's, too, is none of softnic's."""
    wrong = type("Wrong", (ValueError, also), {})

    class Refusing:
        def __reduce__(self) -> Any:
            raise wrong("not this one")

    with pytest.raises(wrong, match=r"^'?not this one'?$") as raised:
        MPI.COMM_SELF.allgather(Refusing())
    assert type(raised.value) is wrong
    assert MPI.COMM_SELF.allgather(5) == [5]


def test_a_program_adds_error_classes_and_codes() -> None:
    added = MPI.Add_error_class()
    code = MPI.Add_error_code(added)
    assert MPI.COMM_SELF.Get_attr(MPI.LASTUSEDCODE) == code > added > MPI.ERR_LASTCODE
    MPI.Add_error_string(code, "out of luck")
    assert (MPI.Get_error_class(code), MPI.Get_error_string(code), str(MPI.Exception(code))) == (
        added,
        "out of luck",
        "out of luck",
    )
    for remove, number in ((MPI.Remove_error_class, added), (MPI.Remove_error_code, code)):
        with pytest.raises(MPI.Exception):
            remove(number)
    MPI.Remove_error_string(code)
    MPI.Remove_error_code(code)
    MPI.Remove_error_class(added)
    with pytest.raises(MPI.Exception):
        MPI.Add_error_string(MPI.ERR_OTHER, "mine")


# -- error handlers ----------------------------------------------------------------------------------------------------


def test_a_handler_of_the_program_is_called_before_the_error_is_raised() -> None:
    comm = MPI.COMM_SELF.Dup()
    seen: list[tuple[Any, int]] = []
    assert comm.Get_errhandler() == MPI.ERRORS_RETURN
    handler = MPI.Comm.Create_errhandler(lambda where, code: seen.append((where, code)))
    comm.Set_errhandler(handler)
    assert comm.Get_errhandler() == handler
    with pytest.raises(MPI.Exception):
        comm.Bcast(np.zeros(1), root=3)
    comm.Call_errhandler(MPI.ERR_OTHER)
    comm.Call_errhandler(MPI.SUCCESS)
    assert seen == [(comm, MPI.ERR_ROOT), (comm, MPI.ERR_OTHER)]
    made = comm.Dup()
    assert made.Get_errhandler() == handler
    handler.Free()
    assert handler == MPI.ERRHANDLER_NULL
    made.Free()
    comm.Free()


def test_fatal_errors_end_this_process_and_are_errors_of_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    def meet(comm: Communicator) -> None:
        comm.Init()
        comm.Barrier()

    def program(comm: Communicator) -> str:
        if comm.rank == 0:
            comm.Init()
            comm.Set_errhandler(MPI.ERRORS_ARE_FATAL)
            with pytest.raises(SystemExit) as ended:
                comm.Send(np.zeros(1), dest=9)
            assert ended.value.code == MPI.ERR_RANK
            return "ended"
        with pytest.raises(CommError, match="Send on rank 0: dest is 9"):
            meet(comm)
        return "informed"

    assert run(2, program) == ["ended", "informed"]
    assert "softnic: Send on rank 0: dest is 9" in capfd.readouterr().err


# -- attributes, info, names -------------------------------------------------------------------------------------------


def test_attributes_are_copied_and_deleted_as_their_keys_say() -> None:
    comm, deleted = MPI.COMM_SELF.Dup(), []
    kept = MPI.Comm.Create_keyval(True)
    doubled = MPI.Comm.Create_keyval(lambda _, __, value: value * 2, lambda _, __, value: deleted.append(value))
    none = MPI.Comm.Create_keyval(lambda _, __, ___: NotImplemented)
    for key in (kept, doubled, none):
        assert comm.Get_attr(key) is None
        comm.Set_attr(key, [1])
    again = comm.Dup()
    assert [again.Get_attr(key) for key in (kept, doubled, none)] == [[1], [1, 1], None]
    assert again.Get_attr(kept) is comm.Get_attr(kept)
    again.Free()
    comm.Set_attr(doubled, [2])
    comm.Delete_attr(doubled)
    assert deleted == [[1, 1], [1], [2]]
    with pytest.raises(MPI.Exception):
        comm.Delete_attr(doubled)
    assert MPI.Comm.Free_keyval(kept) == MPI.KEYVAL_INVALID
    comm.Free()


def test_an_attributes_function_that_fails_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    comm = MPI.COMM_SELF.Dup()
    key = MPI.Comm.Create_keyval(delete_fn=lambda *_: 1 / 0)
    comm.Set_attr(key, 1)
    with pytest.raises(MPI.Exception, match="ZeroDivisionError") as wrong:
        comm.Delete_attr(key)
    assert wrong.value.Get_error_class() == MPI.ERR_OTHER
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_attributes_of_mpi() -> None:
    def program(comm: Communicator) -> list[Any]:
        keys = (MPI.TAG_UB, MPI.HOST, MPI.IO, MPI.WTIME_IS_GLOBAL, MPI.UNIVERSE_SIZE, MPI.APPNUM)
        return [comm.Get_attr(key) for key in keys]

    assert run(2, program) == [[(1 << 31) - 1, MPI.PROC_NULL, rank, False, 2, 0] for rank in range(2)]


def test_info_is_a_dict_of_texts() -> None:
    info = MPI.Info.Create({"a": "1"})
    info["b"] = "2"
    info.update([("c", "3")], d="4")
    assert list(info) == info.keys() == ["a", "b", "c", "d"]
    assert (info.Get_nkeys(), info.Get_nthkey(1), info.Get("z"), info.get("z", "0")) == (4, "b", None, "0")
    again = pickle.loads(pickle.dumps(info))
    assert again != info
    assert again.items() == info.Dup().items() == info.items()
    assert (info.pop("a"), info.popitem(), len(info), "b" in info) == ("1", ("d", "4"), 2, True)
    del info["b"]
    refusals: dict[int, Callable[[], object]] = {
        MPI.ERR_INFO_NOKEY: lambda: info.Delete("b"),
        MPI.ERR_INFO_KEY: lambda: info.Set("k" * 100, "v"),
        MPI.ERR_INFO_VALUE: lambda: info.Set("k", "v" * 1000),
        MPI.ERR_INFO: lambda: MPI.INFO_NULL.Get("a"),
    }
    for code, refused in refusals.items():
        with pytest.raises(MPI.Exception) as wrong:
            refused()
        assert wrong.value.Get_error_class() == code
    info.Free()
    assert info == MPI.INFO_NULL


def test_names_and_info_of_a_communicator() -> None:
    assert (MPI.COMM_WORLD.name, MPI.COMM_SELF.name, MPI.COMM_NULL.name) == (
        "MPI_COMM_WORLD",
        "MPI_COMM_SELF",
        "MPI_COMM_NULL",
    )
    comm = MPI.COMM_SELF.Dup(MPI.Info.Create({"host": "here"}))
    assert comm.name == ""
    comm.name = "mine"
    assert comm.Get_name() == "mine"
    assert comm.info.items() == comm.Dup().info.items() == [("host", "here")]
    assert comm.Dup_with_info(MPI.INFO_NULL).info.items() == []
    made, request = comm.Idup()
    request.Wait()
    assert comm.Compare(made) == MPI.CONGRUENT
    assert comm.Compare(comm) == MPI.IDENT
    assert (comm.is_intra, comm.is_inter, comm.topology, comm.is_topo) == (True, False, MPI.UNDEFINED, False)


CONSTANTS = ("COMM_NULL", "COMM_SELF", "COMM_WORLD", "GROUP_EMPTY", "GROUP_NULL", "INFO_ENV", "INFO_NULL")


@pytest.mark.parametrize("name", [*CONSTANTS, "ERRHANDLER_NULL", "ERRORS_RETURN", "ERRORS_ARE_FATAL", "ERRORS_ABORT"])
def test_constants_are_pickled_by_name(name: str) -> None:
    constant = getattr(MPI, name)
    for again in (pickle.loads(pickle.dumps(constant)), copy.copy(constant), copy.deepcopy(constant)):
        assert again is constant
    other = type(constant)(constant)
    assert other == constant
    assert other is not constant
    assert pickle.loads(pickle.dumps(other)) == constant
    assert type(constant).fromhandle(constant.handle) == type(constant).f2py(constant.py2f()) == constant
    constant.free()
    other.free()
    assert not other
    assert bool(constant) == ("NULL" not in name)


def test_a_process_that_has_imported_nothing_unpickles_constants() -> None:
    sent = pickle.dumps([MPI.INT, MPI.SUM, MPI.COMM_SELF, type(MPI.INT)(MPI.INT)])
    program = (
        "import pickle, sys; found = pickle.load(sys.stdin.buffer); MPI = sys.modules['softnic.MPI'];"
        "print(found == [MPI.INT, MPI.SUM, MPI.COMM_SELF, MPI.INT])"
    )
    done = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, timeout=60, check=True)
    assert done.stdout == b"True\n"


def test_what_is_no_constant_is_not_pickled() -> None:
    for thing in (MPI.COMM_SELF.Dup(), MPI.COMM_SELF.Get_group()):
        with pytest.raises(ValueError, match="only constants can be pickled"):
            pickle.dumps(thing)


def test_what_a_program_asks_about_its_process() -> None:
    assert MPI.Get_version() >= (3, 1)
    assert MPI.Get_library_version().startswith("softnic ")
    assert MPI.get_vendor()[0] == "softnic"
    assert MPI.Get_processor_name()
    assert 0 < MPI.Wtick() < 1e-3
    assert MPI.Is_thread_main()
    assert MPI.Init_thread(MPI.THREAD_SINGLE) == MPI.Query_thread() == MPI.THREAD_MULTIPLE
    MPI.Pcontrol(1)
    assert not MPI.Comm.Get_parent()
