"""ScaleCom: all ranks send the elements that one of them selects, so that sparse gradients can be all-reduced.

Chen et al. (NeurIPS 2020), Algorithm 1 with the compressor CLT-k (cyclic local top-k). The paper selects the largest
elements of each chunk; here they are those of each parameter.
"""

from __future__ import annotations

import numpy as np

from softnic.gradients import indices as coding
from softnic.gradients.flat import Flat, cut, zero_nonfinite
from softnic.gradients.indices import Indices
from softnic.gradients.method import Floats, Gradients, Method, MethodError
from softnic.gradients.sparse import check_density, check_floor, largest, selected_count
from softnic.mpi.arguments.buffers import IN_PLACE
from softnic.mpi.communicator import Communicator


class ScaleCom(Method):
    """By parameter, with memory m (zeros at first), at step t:

    1. p = m + g
    2. The rank t mod N selects the fraction of its p with the largest magnitudes, and sends the indices to all.
    3. All-reduce p at these indices; divided by N it is the mean, zero elsewhere.
    4. m = m + beta (g - s), where s is what this rank sent: p at these indices, zero elsewhere. With beta = 1 this is
       error feedback; less is a low-pass filter, for large learning rates.

    Unlike in DGC and Sparse GD, the received bytes do not grow with the number of ranks.

    Not worthwhile where ranks' gradients differ much, as with small batches: the leader's selection is then noise to
    the others. Nor with small models: broadcast and all-reduce wait for the network twice, not once.
    """

    name = "scalecom"

    def __init__(self, density: float = 0.01, beta: float = 1.0, floor: int = 0) -> None:
        """`density`: fraction that is sent. `floor`: parameters of up to this size are sent whole."""
        super().__init__()
        if not 0 < beta <= 1:
            raise MethodError(f"scalecom takes a beta above 0 and at most 1, not {beta}")
        self._density = check_density(density)
        self._beta = np.float32(beta)
        self._floor = check_floor(floor)
        self._flat = Flat()

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        if not gradients:
            return
        flat = self._flat.get(gradients)
        with np.errstate(over="ignore", invalid="ignore"):
            for name, gradient, part in cut(flat, gradients):
                np.add(self.kept("memory", name, gradient.size), gradient, out=part)
            indices, sent_bytes = self._agree(comm, gradients, flat)
            values = flat[indices]
            self._remember(gradients, flat, indices)
            comm.Allreduce(IN_PLACE, values)
            flat[:] = 0
            flat[indices] = values * np.float32(1 / comm.size)
        for _, gradient, part in cut(flat, gradients):
            gradient[:] = part
        self._step(gradients)
        self.stats.count(gradients, sent_bytes + values.nbytes, kept_share=indices.size / max(flat.size, 1))

    def _agree(self, comm: Communicator, gradients: Gradients, flat: Floats) -> tuple[Indices, int]:
        """Step 2. Returns the indices in `flat`, and the bytes that this rank sent."""
        leader = self.steps(next(iter(gradients))) % comm.size
        counts = [selected_count(gradient.size, self._density, self._floor) for gradient in gradients.values()]
        if comm.rank != leader:
            return coding.decode(comm.bcast(None, leader), sum(counts), flat.size), 0
        indices, start = [], 0
        for count, (_, _, part) in zip(counts, cut(flat, gradients), strict=True):
            indices.append(largest(part, count) + start)
            start += part.size
        chosen = np.concatenate(indices)
        message = coding.encode(chosen)
        comm.bcast(message, leader)
        return chosen, len(message)

    def _remember(self, gradients: Gradients, flat: Floats, indices: Indices) -> None:
        """Step 4. `flat` is p."""
        values = flat[indices]
        flat[indices] = 0
        for name, gradient, part in cut(flat, gradients):
            memory = self.kept("memory", name, gradient.size)
            memory *= 1 - self._beta
            part *= self._beta
            memory += part
            zero_nonfinite(memory)
        flat[indices] = values
