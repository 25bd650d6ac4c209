"""The failed ranks of a communicator that one of its ranks knows of, in the order in which it learnt of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Failures:
    ranks: list[int] = field(default_factory=list)
    acknowledged: int = 0
    """How many of them, from the first one, the program has acknowledged."""

    def update(self, ranks: Iterable[int]) -> list[int]:
        """Add ranks, and return all."""
        self.ranks += [rank for rank in ranks if rank not in self.ranks]
        return list(self.ranks)
