"""Operations: on objects, on arrays by NICs or in the process, and those of the program."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run


def added(left: Any, inout: Any, datatype: Any) -> Any:
    """Sum of integers; of objects without a datatype."""
    if datatype is None:
        return left + inout
    np.frombuffer(inout, np.intc)[:] += np.frombuffer(left, np.intc)
    return None


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (MPI.LAND, [0, 0, 0, 1]),
        (MPI.LOR, [0, 1, 1, 1]),
        (MPI.LXOR, [0, 1, 1, 0]),
        (MPI.BAND, [0, 0, 0, 4]),
        (MPI.BOR, [0, 6, 12, 14]),
        (MPI.BXOR, [0, 6, 12, 10]),
        (MPI.MAX, [0, 6, 12, 12]),
        (MPI.REPLACE, [0, 6, 0, 6]),
        (MPI.NO_OP, [0, 0, 12, 12]),
    ],
)
def test_two_buffers_are_combined_in_the_process(op: MPI.Op, expected: list[int]) -> None:
    left, right = np.array([0, 0, 12, 12]), np.array([0, 6, 0, 6])
    op.Reduce_local(left, right)
    assert right.tolist() == expected
    assert [int(op(*pair)) for pair in zip([0, 0, 12, 12], [0, 6, 0, 6], strict=True)] == expected


@pytest.mark.parametrize("op", [MPI.LAND, MPI.LXOR, MPI.BAND, MPI.BXOR, MPI.BOR])
def test_nics_combine_by_logic_and_by_bits(op: MPI.Op) -> None:
    def program(comm: Communicator) -> list[int]:
        data, result = np.array([0, 1, 3, 6]) * (comm.rank + 1), np.zeros(4, np.int64)
        comm.Allreduce(data, result, op)
        return [*result.tolist()]

    size = 3
    expected = np.array([0, 1, 3, 6])
    for rank in range(1, size):
        right = np.array([0, 1, 3, 6]) * (rank + 1)
        op.Reduce_local(expected, right)
        expected = right
    assert run(size, program) == [expected.tolist()] * size


PAIRS = [MPI.FLOAT_INT, MPI.DOUBLE_INT, MPI.LONG_INT, MPI.SHORT_INT, MPI.INT_INT, MPI.LONG_DOUBLE_INT]


@pytest.mark.parametrize("pair", PAIRS)
def test_the_best_pairs_and_their_indices(pair: MPI.Datatype) -> None:
    code = dict(zip([each.name for each in PAIRS], "fdlhig", strict=True))[pair.name]
    items = np.dtype([("value", code), ("index", "i")], align=True)
    assert (items.itemsize, items.fields["index"][1] + 4) == (pair.extent, pair.true_extent)  # type: ignore[index]
    left, right = np.zeros(3, items), np.zeros(3, items)
    left["value"], left["index"] = [1, 5, 4], [0, 0, 1]
    right["value"], right["index"] = [2, 3, 4], [1, 1, 0]
    smallest = right.copy()
    MPI.MAXLOC.Reduce_local([left, 3, pair], [right, 3, pair])
    assert right.tolist() == [(2, 1), (5, 0), (4, 0)]
    MPI.MINLOC.Reduce_local([left, 3, pair], [smallest, 3, pair])
    assert smallest.tolist() == [(1, 0), (3, 1), (4, 0)]


def test_operations_that_are_not_defined() -> None:
    floats = np.zeros(2)
    for op, spec in ((MPI.BAND, floats), (MPI.MAXLOC, floats), (MPI.SUM, [floats, 1, MPI.DOUBLE_INT])):
        with pytest.raises(MPI.Exception) as caught:
            op.Reduce_local(spec, spec)
        assert caught.value.Get_error_class() == MPI.ERR_OP
    with pytest.raises(ValueError, match="the input has 1 elements, the output 2"):
        MPI.SUM.Reduce_local([floats, 1], floats)


INTEGERS, FLOATS, COMPLEX = "bBhHiIlLqQ", "fdg", "FDG"
DEFINED = {
    "SUM": INTEGERS + FLOATS + COMPLEX, "PROD": INTEGERS + FLOATS + COMPLEX, "MAX": INTEGERS + FLOATS,
    "MIN": INTEGERS + FLOATS, "LAND": INTEGERS + "?", "LOR": INTEGERS + "?", "LXOR": INTEGERS + "?", "BAND": INTEGERS,
    "BOR": INTEGERS, "BXOR": INTEGERS, "MAXLOC": "", "MINLOC": "",
}  # fmt: skip
"""By operation, numpy's letters of the types that mpi4py takes over Open MPI 4.1."""


def test_operations_are_defined_for_the_types_that_mpi4py_takes() -> None:
    def program(comm: Communicator) -> dict[str, str]:
        taken = dict.fromkeys(DEFINED, "")
        for name in DEFINED:
            for letter in INTEGERS + "?" + FLOATS + COMPLEX:
                calls = (comm.Allreduce, comm.Reduce, comm.Scan, comm.Reduce_scatter_block)
                refused = 0
                for call in calls:
                    try:
                        call(np.ones(comm.size, letter), np.ones(comm.size, letter), op=getattr(MPI, name))
                    except MPI.Exception as error:
                        refused += error.Get_error_class() == MPI.ERR_OP
                assert refused in (0, len(calls))
                taken[name] += "" if refused else letter
        return taken

    for taken in run(2, program):
        assert {name: set(letters) for name, letters in taken.items()} == {
            name: set(letters) for name, letters in DEFINED.items()
        }


def test_what_is_no_operation_is_of_its_class() -> None:
    def program(comm: Communicator) -> list[int]:
        found = []
        for call in (
            lambda: comm.Allreduce(np.ones(1), np.ones(1), op=MPI.OP_NULL),
            lambda: comm.allreduce(1, op=MPI.OP_NULL),
            lambda: comm.Scan(np.ones(1), np.ones(1), op=MPI.AVG),
        ):
            with pytest.raises(MPI.Exception) as caught:
                call()
            found.append(caught.value.Get_error_class())
        return found

    assert run(1, program) == [[MPI.ERR_OP] * 3]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("letter", COMPLEX)
def test_sums_of_complex_numbers_keep_the_signs_of_their_zeros(letter: str, size: int) -> None:
    zero = complex(-0.0, 0.0)

    def program(comm: Communicator) -> list[Any]:
        found = []
        for call in (comm.Allreduce, comm.Scan, comm.Reduce_scatter_block):
            result = np.ones(size, letter)
            call(np.full(size, zero, letter), result)
            found.append(result[0])
        found.append(comm.allreduce(zero))
        MPI.SUM.Reduce_local(np.full(1, zero, letter), last := np.full(1, zero, letter))
        return [*found, last[0]]

    for found in run(size, program):
        assert [(np.signbit(each.real), np.signbit(each.imag)) for each in found] == [(True, False)] * 5


def test_an_operation_of_the_program() -> None:
    op = MPI.Op.Create(added, commute=True)
    assert op.Is_commutative()
    assert not op.is_predefined
    assert op(2, 3) == 5
    left, right = np.array([1, 2], np.intc), np.array([3, 4], np.intc)
    op.Reduce_local(left, right)
    assert right.tolist() == [4, 6]
    again = pickle.loads(pickle.dumps(op))
    assert again != op
    assert again(2, 3) == 5
    with pytest.raises(ValueError, match="cannot be pickled"):
        pickle.dumps(MPI.Op.fromhandle(op.handle))
    again.Free()
    op.Free()
    assert op == MPI.OP_NULL
    with pytest.raises(ValueError, match="combines nothing"):
        op(2, 3)


def test_a_function_gets_items_of_types_with_gaps_at_their_places() -> None:
    seen: list[tuple[int, int]] = []

    def largest(left: Any, inout: Any, datatype: Any) -> None:
        seen.append((len(inout), datatype.extent))
        first, second = np.frombuffer(left, np.intc), np.frombuffer(inout, np.intc)
        second[0], second[2] = max(first[0], second[0]), first[2] + second[2]

    op, gaps = MPI.Op.Create(largest), MPI.INT.Create_vector(2, 1, 2)
    left, right = np.array([5, 0, 1], np.intc), np.array([3, 9, 2], np.intc)
    op.Reduce_local([left, 1, gaps], [right, 1, gaps])
    assert right.tolist() == [5, 9, 3]
    assert seen == [(12, 12)]
    op.Free()


def test_as_many_operations_as_mpi4py_has() -> None:
    made = [MPI.Op.Create(added) for _ in range(32)]
    with pytest.raises(RuntimeError, match="free some"):
        MPI.Op.Create(added)
    for op in made:
        op.Free()
    MPI.Op.Create(added).Free()


def test_constants_are_pickled_by_name() -> None:
    for op in (MPI.SUM, MPI.MAXLOC, MPI.OP_NULL):
        assert pickle.loads(pickle.dumps(op)) is op
        copy = pickle.loads(pickle.dumps(MPI.Op(op)))
        assert copy == op
        assert copy is not op
    with pytest.raises(TypeError):
        hash(MPI.SUM)
