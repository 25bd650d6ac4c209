"""What the codec rht is made of, for implementations elsewhere (docs/FORMAT.md, codec 5)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softnic._native import lib

WORDS = 128
"""Of a block."""


class RhtTables(NamedTuple):
    """The tables of one number of bits a word."""

    signs: np.ndarray[Any, np.dtype[np.int32]]
    """(128,): 1 where a word changes its sign."""
    thresholds: np.ndarray[Any, np.dtype[np.float32]]
    """(2^(bits - 1) - 1,), ascending."""
    levels: np.ndarray[Any, np.dtype[np.float32]]
    """(2^(bits - 1),), ascending; the last is 1."""


def rht_tables(bits: int) -> RhtTables:
    """Return the tables for 3 to 6 bits a word. Raises ValueError for another number."""
    if not 3 <= bits <= 6:
        raise ValueError(f"rht has 3 to 6 bits a word, not {bits}")
    parts, levels = lib.sn_rht_parts_of(bits), 1 << (bits - 1)
    return RhtTables(
        np.array([parts.signs[index] >> 31 for index in range(WORDS)], np.int32),
        np.array([parts.thresholds[index] for index in range(levels - 1)], np.float32),
        np.array([parts.levels[index] for index in range(levels)], np.float32),
    )
