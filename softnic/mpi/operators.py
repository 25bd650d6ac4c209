"""Op: mpi4py's names for the reductions.

NICs combine arrays by those of softnic/collectives/operations.py. The others are applied in this process: functions of
the program (Op.Create), the pairs of MAXLOC and MINLOC, REPLACE and NO_OP. On objects, all are.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Self

import numpy as np

from softnic.collectives.elements import Array
from softnic.collectives.operations import ARRAY_OPS, ArrayOp
from softnic.comm.error_classes import ERR_OP
from softnic.comm.errors import ArgumentError, Refused, application_code
from softnic.mpi.arguments.buffers import MessageBuffer, message
from softnic.mpi.datatypes.datatype import Datatype
from softnic.mpi.datatypes.definition import DatatypeHandle, TypeDefinition
from softnic.mpi.handles import Handle, constant
from softnic.mpi.memory import buffer

_OF_BOOLEANS = ("LAND", "LOR", "LXOR")
"""The predefined reductions that MPI defines for booleans."""
MAX_CREATED = 32
"""Operations that a program may have created and not freed, as in mpi4py."""


class OpDefinition:
    """A reduction: of objects, and of arrays by a NIC, by a function of arrays, or by one of the program."""

    def __init__(
        self,
        name: str,
        objects: Callable[[Any, Any], Any],
        *,
        commute: bool = True,
        pairs: Callable[[Array, Array], Array] | None = None,
        function: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self.objects = objects
        self.commute = commute
        self.pairs = pairs
        """Returns where the left one of two arrays is taken."""
        self.function = function
        self.array_op: ArrayOp | None = None if function is not None else ARRAY_OPS.get(name)

    def combine(self, left: Array, inout: Array, definition: TypeDefinition) -> None:
        """Store `left` op `inout` in `inout`."""
        if self.function is not None:
            _apply(self.function, left, inout, definition)
        elif self.array_op is not None:
            self.array_op.combine(left, inout, inout)
        elif self.pairs is not None:
            _select(self.pairs, left.view(pair_type(definition)), inout.view(pair_type(definition)))
        elif self.name == "NO_OP":
            inout[:] = left

    def takes(self, dtype: np.dtype[Any], definition: TypeDefinition | None = None) -> bool:
        """Return whether it is defined for elements, which are `dtype` and of items of `definition`."""
        if self.array_op is not None:
            if dtype.kind == "b" and self.name not in _OF_BOOLEANS:
                return False
            return self.array_op.takes(dtype) and not (definition is not None and _is_mixed(definition))
        return self.pairs is None or (definition is not None and len(_kinds(definition)) == 2)


class UndefinedOpError(Refused):
    """An argument is no operation, or one that is not defined for the elements of a buffer."""

    def __init__(self, text: str) -> None:
        super().__init__(ERR_OP, text)


class Op(Handle):
    """A reduction. `Op(op)` is another handle of it, `Op()` is OP_NULL. On two objects it is a function."""

    null_code = ERR_OP
    _target: OpDefinition | None
    _imported = False
    """Whether it was made from a number, which cannot be pickled."""

    @property
    def _definition(self) -> OpDefinition:
        definition: OpDefinition = self._live()
        return definition

    @property
    def name(self) -> str:
        """The name, by which ranks compare what they do."""
        return self._definition.name

    @property
    def average(self) -> bool:
        """Whether the combined value is divided by the number of ranks."""
        op = self._definition.array_op
        return op is not None and op.average

    def takes(self, dtype: np.dtype[Any], datatype: DatatypeHandle | None = None) -> bool:
        """Return whether it is defined for the elements of an array.

        Parameters
        ----------
        dtype
            Of the array.
        datatype
            Of the message; None: that of the elements.
        """
        return self._definition.takes(dtype, None if datatype is None else datatype._target)

    def offloaded(self, dtype: np.dtype[Any]) -> bool:
        """Return whether NICs can apply it.

        Parameters
        ----------
        dtype
            Of the elements.
        """
        op = self._definition.array_op
        return op is not None and op.takes(dtype)

    def combine(self, left: Array, inout: Array, definition: TypeDefinition) -> None:
        """Apply it to arrays in this process: `inout` becomes `left` op `inout`.

        Parameters
        ----------
        left, inout
            Flat arrays of the elements of two messages of the same type.
        definition
            Of that type.
        """
        self._definition.combine(left, inout, definition)

    def finish(self, array: Array, ranks: int) -> None:
        """Complete a combination in this process: AVG divides by the number of contributions.

        Parameters
        ----------
        array
            The combination.
        ranks
            Number of contributions.
        """
        if self._definition.array_op is not None:
            self._definition.array_op.finish(array, ranks)

    def fold(self, objects: Sequence[Any]) -> Any:
        """Return the combination of objects in their order, so that every rank gets the same.

        Parameters
        ----------
        objects
            One at least.
        """
        folded = reduce(self._definition.objects, objects)
        return folded / len(objects) if self.average else folded

    def __call__(self, x: Any, y: Any, /) -> Any:
        if self._target is None:
            raise ValueError("MPI.OP_NULL combines nothing")
        return self._target.objects(x, y)

    @classmethod
    def Create(cls, function: Callable[..., Any], commute: bool = False) -> Self:
        """Return a reduction by a function of the program, which is called in the process.

        Parameters
        ----------
        function
            Called with two memories and a datatype, it stores the combination in the second memory. With two objects
            and None, it returns their combination.
        commute
            Whether the order of the operands does not matter.
        """
        if len(_created) >= MAX_CREATED:
            raise RuntimeError(f"a program may have created {MAX_CREATED} operations: free some")
        name = getattr(function, "__name__", type(function).__name__)
        definition = OpDefinition(name, lambda x, y: function(x, y, None), commute=bool(commute), function=function)
        _created.add(definition)
        return cls._named(definition)

    def Free(self) -> None:
        """Make this handle OP_NULL, and allow another operation to be created."""
        if self._definition.function is None:
            raise ArgumentError(f"{self!r} is predefined: it is not freed", code=ERR_OP)
        _created.discard(self._definition)
        self._target = None

    def Is_commutative(self) -> bool:
        """Return whether the order of operands does not matter."""
        return self._definition.commute

    @property
    def is_commutative(self) -> bool:
        """Whether the order of operands does not matter."""
        return self.Is_commutative()

    @property
    def is_predefined(self) -> bool:
        """Whether it exists without being created."""
        return self._target is None or self._target.function is None

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Combine two buffers of this process: the second one becomes the first op the second.

        Parameters
        ----------
        inbuf, inoutbuf
            Buffers of the same type and length.
        """
        target = message(inoutbuf, writable=True, what="the input and output buffer")
        source = message(inbuf, what="the input buffer")
        check_alike(source, target)
        if not self.takes(target.array.dtype, Datatype._named(target.definition)):
            raise ArgumentError(f"{self!r} is not defined for {Datatype._named(target.definition)!r}", code=ERR_OP)
        self.combine(source.array, target.array, target.definition)
        target.write_back()

    @classmethod
    def fromhandle(cls, handle: int) -> Any:
        """Return an object for a number that `handle` gave.

        Parameters
        ----------
        handle
            The number.
        """
        op = super().fromhandle(handle)
        op._imported = True
        return op

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._is_constant():
            return super().__reduce__()
        thing = self._definition
        if self._imported:
            raise ValueError("an operation that was made from a number cannot be pickled")
        return type(self).Create, (thing.function, thing.commute)

    def __repr__(self) -> str:
        if self._target is None or self._is_the_constant():
            return f"MPI.{self._constant_name()}"
        return f"<MPI.Op: {self._target.name}>"


_created: weakref.WeakSet[OpDefinition] = weakref.WeakSet()


def check_alike(source: MessageBuffer, target: MessageBuffer) -> None:
    """Raise ValueError unless both messages have as many items of the same type."""
    first, second = source.definition, target.definition
    if first is not second and (first.dtype != second.dtype or first.layout.size != second.layout.size):
        raise ValueError(f"the input holds {first.name or first.combiner}, the output {second.name or second.combiner}")
    if source.count != target.count:
        raise ValueError(f"the input has {source.count} elements, the output {target.count}")


def _kinds(definition: TypeDefinition) -> list[np.dtype[Any]]:
    """Return the type of each element of an item, of the first three at most."""
    layout = definition.layout
    found: list[np.dtype[Any]] = []
    for length, kind in zip(layout.lengths[:3].tolist(), layout.kinds[:3].tolist(), strict=True):
        dtype = layout.elements[kind]
        found += [dtype] * min(3, length // dtype.itemsize)
    return found


def _is_mixed(definition: TypeDefinition) -> bool:
    """Return whether items have elements of several types, or are pairs of MPI's."""
    return definition.layout.element is None or (
        definition.is_named and not definition.code and not definition.char and len(_kinds(definition)) > 1
    )


def pair_type(definition: TypeDefinition) -> np.dtype[Any]:
    """Return the packed items of a pair of a value and an index as a structure of numpy's. Raises ValueError."""
    kinds = _kinds(definition)
    if len(kinds) != 2:
        raise ValueError(f"items of {definition.name or definition.combiner} are no pairs of a value and an index")
    return np.dtype([("value", kinds[0]), ("index", kinds[1])])


def _select(better: Callable[[Array, Array], Array], left: Array, inout: Array) -> None:
    """Store the better pairs in `inout`; of equal ones, those with the smaller index."""
    taken = better(left["value"], inout["value"])
    taken |= (left["value"] == inout["value"]) & (left["index"] < inout["index"])
    inout[taken] = left[taken]


def _apply(function: Callable[..., Any], left: Array, inout: Array, definition: TypeDefinition) -> None:
    """Call a program's function with memory in which items have their extent."""
    layout, datatype = definition.layout, Datatype._named(definition)

    def call(left: buffer, right: buffer) -> None:
        with application_code():
            function(left, right, datatype)

    first, second = left.view(np.uint8), inout.view(np.uint8)
    if layout.is_dense:
        call(buffer.frombuffer(first), buffer.frombuffer(second))
        return
    count = second.size // layout.size if layout.size else 0
    start = max(0, -layout.true_lb)
    size = start + max(count * layout.extent, (count - 1) * layout.extent + layout.true_ub)
    memories = []
    for packed in (first, second):
        memory = np.zeros(size, np.uint8)
        layout.scatter(packed, memory, start)
        memories.append(memory)
    call(*(buffer.frombuffer(memory[start:]) for memory in memories))
    second[:] = layout.gather(memories[1], start, count)


def _greater(x: Any, y: Any) -> Any:
    return y if y > x else x


def _smaller(x: Any, y: Any) -> Any:
    return y if y < x else x


def _located(better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """Return the function of two pairs that returns the better one; of equal ones, that with the smaller index."""

    def select(x: Any, y: Any) -> Any:
        (value, index), (other, other_index) = x, y
        if better(value, other):
            return value, index
        if better(other, value) or other_index < index:
            return other, other_index
        return value, index

    return select


def _constants() -> dict[str, Op]:
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "MAX": _greater, "MIN": _smaller, "SUM": operator.add, "PROD": operator.mul, "AVG": operator.add,
        "LAND": lambda x, y: bool(x) & bool(y), "BAND": operator.and_,
        "LOR": lambda x, y: bool(x) | bool(y), "BOR": operator.or_,
        "LXOR": lambda x, y: bool(x) ^ bool(y), "BXOR": operator.xor,
        "REPLACE": lambda _, y: y, "NO_OP": lambda x, _: x,
    }  # fmt: skip
    made = {
        name: OpDefinition(name, function, commute=name not in ("REPLACE", "NO_OP"))
        for name, function in functions.items()
    }
    made["MAXLOC"] = OpDefinition("MAXLOC", _located(operator.gt), pairs=operator.gt)
    made["MINLOC"] = OpDefinition("MINLOC", _located(operator.lt), pairs=operator.lt)
    null = {"OP_NULL": constant("OP_NULL", Op())}
    return null | {name: constant(name, Op._named(each)) for name, each in made.items()}


OPS = _constants()
"""The constants of softnic.MPI, by name."""
OP_NULL, SUM, PROD, MAX, MIN, AVG = (OPS[name] for name in ("OP_NULL", "SUM", "PROD", "MAX", "MIN", "AVG"))
