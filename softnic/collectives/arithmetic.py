"""How elements are combined: what a Post's names of element types and operations stand for is known here alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.collectives import operations
from softnic.collectives.elements import name_of, named
from softnic.ipc.work_queue import Post

Array = npt.NDArray[Any]
Combine = Callable[..., object]
"""(left, right, out=out): left op right, element by element. Arrays need no alignment; `out` may be an operand."""
Finish = Callable[[Array], object]
"""Done in place to what holds all contributions."""

_OPS = {op.name: op for op in (operations.SUM, operations.PROD, operations.MAX, operations.MIN, operations.AVG)}
_TYPES = {np.dtype(code).name for code in np.typecodes["All"] if np.dtype(code).kind in "biufc"} | {"bfloat16"}


def element_type(name: str) -> np.dtype[Any]:
    """The numpy type of elements of this name, as they lie in memory. Raises ValueError."""
    if name not in _TYPES:
        raise ValueError(f"{name!r} is no element type of collectives")
    return named(name)


def nbytes(post: Post) -> int:
    """Bytes of all blocks: of what a Post's `source` and `result` name. Raises ValueError."""
    if min(post.counts, default=0) < 0:
        raise ValueError(f"blocks of {min(post.counts)} elements")
    return sum(post.counts) * element_type(post.dtype).itemsize


def operation(name: str, dtype: np.dtype[Any], size: int) -> tuple[Combine, Finish | None]:
    """How arrays are combined, and what is done to the combined ones of `size` ranks. Raises ValueError."""
    op = _OPS.get(name)
    if op is None or not op.takes(dtype):
        raise ValueError(f"there is no operation {name!r} of {name_of(dtype)}")
    return op.combine, partial(op.finish, ranks=size) if op.average else None
