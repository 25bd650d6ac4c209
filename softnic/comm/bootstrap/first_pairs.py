"""Which pairs of ranks connect at the start: softnic/collectives/pairs.py, by the setting of the environment."""

from __future__ import annotations

import os

from softnic.collectives import pairs

VARIABLE = "SOFTNIC_CONNECT"
"""`all` or `needed`, the same for all ranks: whether all pairs connect at the start, whatever the number of ranks."""


def all_connect_at_start(size: int) -> bool:
    """Return whether each pair of ranks connects before the first call. Raises ValueError for a setting of nonsense."""
    return pairs.is_full(size, _choice())


def connected_at_start(rank: int, size: int) -> frozenset[int]:
    """Return the ranks that a rank connects with before its first call. Raises ValueError for a setting of nonsense."""
    return pairs.at_start(rank, size, _choice())


def _choice() -> str:
    choice = os.environ.get(VARIABLE, "")
    if choice not in pairs.CHOICES:
        raise ValueError(f"{VARIABLE}={choice}: it is all or needed")
    return choice
