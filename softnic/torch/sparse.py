"""Sums of sparse tensors (COO), as embeddings have for gradients.

What the ranks have is gathered: first how many elements each has, for which the caller waits, then all indices and
values, filled up to the most that any rank has. Every rank adds them in rank order, so all get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Tensor = torch.Tensor
Gather = Callable[[Tensor], list[Tensor]]
"""The tensors of all ranks, of equal shapes, in rank order; they are there when the call is over."""


class SparseSum:
    """The sum of one sparse tensor a rank. `counts`: the elements that every rank has, of its coalesced tensor."""

    def __init__(self, own: Tensor, counts: Sequence[int], gather: Gather) -> None:
        self._counts = counts
        self._target = own
        coalesced = own.detach().coalesce()
        most = max(counts)
        self._indices = gather(_filled(coalesced.indices().t(), most))
        self._values = gather(_filled(coalesced.values(), most))

    def finish(self) -> None:
        """Makes the sum of what was gathered, and puts it where this rank's part was."""
        pairs = list(zip(self._counts, self._indices, self._values, strict=True))
        indices = torch.cat([rows[:count] for count, rows, _ in pairs]).t()
        values = torch.cat([rows[:count] for count, _, rows in pairs])
        total = torch.sparse_coo_tensor(indices, values, self._target.shape, check_invariants=False).coalesce()
        self._target.copy_(total)


def count_of(own: Tensor) -> Tensor:
    """How many elements a rank has, to be gathered."""
    return torch.tensor([own.detach().coalesce().indices().shape[1]])


def _filled(rows: Tensor, length: int) -> Tensor:
    """As many rows, with zeros behind."""
    filled = rows.new_zeros((length, *rows.shape[1:]))
    filled[: rows.shape[0]] = rows
    return filled
