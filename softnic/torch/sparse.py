"""Sums of sparse COO tensors, such as the gradients of embeddings.

1. All ranks gather the number of elements that each has; the caller waits for it.
2. They gather all indices and values, padded with zeros to the largest number of elements.
3. Each rank adds them in rank order, so that all ranks get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Tensor = torch.Tensor
Gather = Callable[[Tensor], list[Tensor]]
"""Gathers tensors of equal shapes; they are complete when the call is."""


class SparseSum:
    """The sum of one sparse tensor of each rank. `counts` are the elements of each rank's coalesced tensor."""

    def __init__(self, own: Tensor, counts: Sequence[int], gather: Gather) -> None:
        self._counts = counts
        self._target = own
        coalesced = own.detach().coalesce()
        length = max(counts)
        self._indices = gather(_padded(coalesced.indices().t(), length))
        self._values = gather(_padded(coalesced.values(), length))

    def finish(self) -> None:
        """Add what was gathered, and store the sum in this rank's tensor."""
        gathered = list(zip(self._counts, self._indices, self._values, strict=True))
        indices = torch.cat([rows[:count] for count, rows, _ in gathered]).t()
        values = torch.cat([rows[:count] for count, _, rows in gathered])
        total = torch.sparse_coo_tensor(indices, values, self._target.shape, check_invariants=False).coalesce()
        self._target.copy_(total)


def count_of(own: Tensor) -> Tensor:
    """Return the number of elements of a sparse tensor, as a tensor."""
    return torch.tensor([own.detach().coalesce().indices().shape[1]])


def _padded(rows: Tensor, length: int) -> Tensor:
    padded = rows.new_zeros((length, *rows.shape[1:]))
    padded[: rows.shape[0]] = rows
    return padded
