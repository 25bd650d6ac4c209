"""States of torch as leaves, and back: every tensor and array is a leaf of its bytes, the rest is one pickle.

- A tensor is a leaf of its elements, in the order of its shape. Strides are kept where the elements fill their memory
  (transposed, channels last); views with gaps or overlaps come back contiguous. A tensor that occurs twice is sent once
  and is one tensor again.
- Of a DTensor, the local part is a leaf; its spec is in the pickle.
- Everything arrives on the CPU, or in the tensors that `writable` was given.
- The pickle is read with a list of allowed names: containers, numbers, types of torch and numpy, dates, and the classes
  that the caller names. Another name is an error, and its code is not run. The pickler keeps no memo, so that equal
  states have equal bytes on all members; objects that contain themselves need it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from softnic.checkpoint import CheckpointError, Leaf, TrainingState
from softnic.checkpoint.manifest import Bytes

_TREE = "tree"
"""Name of the leaf with the pickle."""
_MOST_PICKLE = 1 << 30
_SAFE = {
    "builtins": {
        *(
            "bool",
            "bytearray",
            "bytes",
            "complex",
            "dict",
            "float",
            "frozenset",
            "int",
            "list",
            "object",
            "range",
            "set",
        ),
        *("slice", "str", "tuple"),
    },
    "_codecs": {"encode"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "copyreg": {"_reconstructor"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "fractions": {"Fraction"},
    "pathlib": {"PosixPath", "PurePosixPath"},
    "uuid": {"UUID"},
    "numpy": {"dtype"},
    "numpy.core.multiarray": {"scalar"},
    "numpy._core.multiarray": {"scalar"},
    "torch": {"Size", "device"},
    "torch.distributed.device_mesh": {"DeviceMesh", "_MeshLayout"},
    "torch.distributed._mesh_layout": {"_MeshLayout"},
    "torch.distributed.tensor._dtensor_spec": {"DTensorSpec", "ShardOrderEntry", "TensorMeta"},
    "torch.distributed.tensor.placement_types": {"Partial", "Replicate", "Shard", "_StridedShard"},
    "torch.distributed.tensor": {"Partial", "Replicate", "Shard"},
}


class _Pickler(pickle.Pickler):
    """Puts tensors and arrays aside."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.tensors: list[tuple[Leaf, Bytes]] = []
        self._known: dict[int, tuple[object, object]] = {}
        """What was put aside, by id; kept alive, so that ids are not used again."""

    def persistent_id(self, obj: object) -> object:
        """Return what stands for a tensor or an array in the pickle; None for all else."""
        if not isinstance(obj, (torch.Tensor, np.ndarray)) or (isinstance(obj, np.ndarray) and obj.dtype.hasobject):
            return None
        if id(obj) not in self._known:
            self._known[id(obj)] = (obj, self._put(obj))
        return self._known[id(obj)][1]

    def _put(self, obj: Any) -> tuple[Any, ...]:
        name = str(len(self.tensors))
        if isinstance(obj, np.ndarray):
            plain = np.ascontiguousarray(obj)
            # numpy's structured types have no name that says it all; the pickle has the type.
            leaf = Leaf(name, str(obj.dtype)[:64], obj.dtype.itemsize, obj.shape)
            self.tensors.append((leaf, plain.reshape(-1).view(np.uint8)))
            return "array", name, obj.dtype
        if isinstance(obj, DTensor):
            _, *rest = self._put(obj.to_local())
            return "dtensor", *rest, obj._spec, obj.requires_grad
        if type(obj) not in (torch.Tensor, torch.nn.Parameter):
            raise CheckpointError(f"a tensor of the class {type(obj).__name__}: only torch's own can be sent")
        own = obj.detach()
        if own.layout is not torch.strided:
            raise CheckpointError(f"a tensor with the layout {own.layout}: only strided ones can be sent")
        order = _order(own)
        plain = own.permute(order).contiguous().cpu()
        dtype = str(own.dtype).removeprefix("torch.")
        data = np.asarray(plain.reshape(-1).view(torch.uint8).numpy())
        self.tensors.append((Leaf(name, dtype, own.element_size(), tuple(plain.shape)), data))
        return "tensor", name, own.dtype, order, isinstance(obj, torch.nn.Parameter), obj.requires_grad


def _order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the dimensions in the order in which the elements lie in memory."""
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda index: -strides[index]))
    return order if tensor.permute(order).is_contiguous() else tuple(range(tensor.dim()))


class _Unpickler(pickle.Unpickler):
    """Takes tensors from leaves, and only names that are allowed."""

    def __init__(self, data: bytes, state: TrainingState, classes: Sequence[type]) -> None:
        super().__init__(io.BytesIO(data))
        self._arrays = {leaf.name: (leaf, array) for leaf, array in zip(state.leaves, state.arrays, strict=True)}
        self._classes = {(each.__module__, each.__qualname__): each for each in classes}
        self._made: dict[str, object] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed class. Raises CheckpointError for others."""
        if (module, name) in self._classes:
            return self._classes[module, name]
        if name in _SAFE.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), (torch.dtype, torch.layout)):
            return getattr(torch, name)
        if module.startswith("numpy.dtypes") or (module == "numpy" and _is_scalar(name)):
            return super().find_class(module, name)
        raise CheckpointError(
            f"the state has an object of {module}.{name}, which is not on the list: give SoftnicTransport its class "
            "in classes="
        )

    def persistent_load(self, pid: Any) -> object:
        """Return a tensor or an array."""
        name = pid[1]
        if name not in self._made:
            self._made[name] = self._make(*pid)
        return self._made[name]

    def _make(self, kind: str, name: str, *rest: Any) -> object:
        leaf, data = self._arrays[name]
        if kind == "array":
            return data.view(rest[0]).reshape(leaf.shape)
        dtype, order, is_parameter, needs_grad = rest[:4]
        flat = torch.from_numpy(data).view(dtype) if data.size else torch.empty(0, dtype=dtype)
        back = [order.index(index) for index in range(len(order))]
        tensor = flat.reshape(leaf.shape).permute(back)
        if kind == "dtensor":
            return DTensor(tensor, rest[4], requires_grad=rest[5])  # type: ignore[no-untyped-call]
        if is_parameter:
            return torch.nn.Parameter(tensor, requires_grad=needs_grad)
        return tensor.requires_grad_(needs_grad) if needs_grad else tensor


def _is_scalar(name: str) -> bool:
    found = getattr(np, name, None)
    return isinstance(found, type) and issubclass(found, np.generic)


def _pickled(tree: object) -> tuple[bytes, list[tuple[Leaf, Bytes]]]:
    try:
        return _pickled_with(tree, fast=True)
    except (ValueError, RecursionError):  # an object contains itself
        return _pickled_with(tree, fast=False)


def _pickled_with(tree: object, fast: bool) -> tuple[bytes, list[tuple[Leaf, Bytes]]]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.fast = fast
    pickler.dump(tree)
    return file.getvalue(), pickler.tensors


def to_state(tree: object) -> TrainingState:
    """Return a tree as a state.

    Parameters
    ----------
    tree : object
        Tensors that lie on the CPU in the order of memory are not copied.

    Returns
    -------
    TrainingState
        A leaf for each tensor and array, and one for all else.
    """
    data, leaves = _pickled(tree)
    if len(data) > _MOST_PICKLE:
        raise CheckpointError(f"the objects of the state take {len(data)} bytes, without its tensors: at most 1 GiB")
    whole = Leaf(_TREE, "uint8", 1, (len(data),))
    return TrainingState([(whole, np.frombuffer(data, np.uint8)), *leaves])


def from_state(state: TrainingState, classes: Sequence[type] = ()) -> Any:
    """Return the tree of a state that was received. Tensors share the state's memory.

    Parameters
    ----------
    state : TrainingState
        From `to_state` of another process.
    classes : sequence of type
        That its objects may have, beside those on the list.

    Returns
    -------
    object
        The tree.

    Raises
    ------
    CheckpointError
        If it is none, or an object is of another class.
    """
    try:
        return _Unpickler(state[_TREE].tobytes(), state, classes).load()
    except CheckpointError:
        raise
    except Exception as error:  # what a pickle raises depends on its objects
        raise CheckpointError(f"the objects of the state cannot be read: {error}") from error


def writable(tree: object) -> Callable[[Sequence[Leaf]], list[Bytes]]:
    """Return what gives memory for leaves: that of the tensors of a tree, where they are alike.

    Parameters
    ----------
    tree : object
        A state of the same form. Its tensors on the CPU are written in place; for all else new memory is taken.

    Returns
    -------
    callable
        Takes leaves, returns their arrays.
    """
    _, own = _pickled(tree) if tree is not None else (b"", [])
    known = {leaf.name: (leaf, array) for leaf, array in own}

    def place(leaves: Sequence[Leaf]) -> list[Bytes]:
        arrays = []
        for leaf in leaves:
            like, array = known.get(leaf.name, (None, None))
            fits = like == leaf and array is not None and array.flags.writeable
            arrays.append(array if fits and array is not None else np.empty(leaf.nbytes, np.uint8))
        return arrays

    return place
