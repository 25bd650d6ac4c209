"""How elements are combined: the only place that knows the element types and operations that a WorkRequest names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.collectives import operations
from softnic.collectives.elements import name_of, named
from softnic.ipc.work_queue import WorkRequest

Array = npt.NDArray[Any]
Combine = Callable[..., object]
"""(left, right, out=out): left op right, element by element. Arrays need no alignment; `out` may be an operand."""
Finish = Callable[[Array], object]
"""Applied in place to the combination of all contributions."""

_OPS = {op.name: op for op in (operations.SUM, operations.PROD, operations.MAX, operations.MIN, operations.AVG)}
_TYPES = {np.dtype(code).name for code in np.typecodes["All"] if np.dtype(code).kind in "biufc"} | {"bfloat16"}


def element_type(name: str) -> np.dtype[Any]:
    """Return the numpy type of this name. Raises ValueError."""
    if name not in _TYPES:
        raise ValueError(f"{name!r} is not an element type of collectives")
    return named(name)


def nbytes(request: WorkRequest) -> int:
    """Return the bytes of all blocks, which is the size of `source` and of `result`. Raises ValueError."""
    if min(request.counts, default=0) < 0:
        raise ValueError(f"blocks of {min(request.counts)} elements")
    return sum(request.counts) * element_type(request.dtype).itemsize


def operation(name: str, dtype: np.dtype[Any], size: int) -> tuple[Combine, Finish | None]:
    """Return how arrays are combined, and what is applied to the combination of `size` ranks. Raises ValueError."""
    op = _OPS.get(name)
    if op is None or not op.takes(dtype):
        raise ValueError(f"there is no operation {name!r} of {name_of(dtype)}")
    return op.combine, partial(op.finish, ranks=size) if op.average else None
