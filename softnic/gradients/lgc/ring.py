"""LGC for ring all-reduce: the mean of the codes is the code of the mean (section IV-B, Algorithm 2)."""

from __future__ import annotations

import numpy as np

from softnic.gradients.lgc.autoencoder import Autoencoder
from softnic.gradients.lgc.phases import TRAINER, Lgc, PhaseResult, Sent, mean_of
from softnic.gradients.lgc.selection import Layout, pack_indices, scales, select, spread, unpack_indices
from softnic.gradients.method import Floats
from softnic.mpi.communicator import Communicator


class LgcRing(Lgc):
    """Learned gradient compression for ring all-reduce (Abrahamyan, Chen, Bekoulis, Deligiannis, 2021).

    On every rank, by parameter, with accumulated gradients v (zeros at first), and u = g without momentum:

    1. u = m u + g. The first layer's mean is that of u, exactly, in all phases.
    2. Phase 1, `full` steps: so is every other layer's.
    3. Later: v += u. A random rank, the same for all, selects the indices of the largest 0.1 % of each parameter of its
       v, and computes the root mean square of their values; all ranks get both, and take the values of their own v at
       these indices. v and u become zero there.
    4. The last layer's values: their mean, exactly.
    5. The others', divided by the root mean squares, form one vector on each rank. Phase 2, `learn` steps: all ranks
       gather all vectors and use their mean; rank 0 trains the autoencoder to reconstruct that mean from the mean of
       their codes. At the end all ranks get its weights.
    6. Phase 3: each rank encodes its vector, the codes are averaged, and each rank decodes the mean.

    In step 3 the paper adds to v what it contains already (Algorithm 2's last line but five), which counts gradients
    twice; here it is as in DGC, to which the paper refers. Each rank decodes by itself, so ranks end with the same bits
    only if their processors and torch versions are of the same kind.

    Not worthwhile for small layers, as at least one value of each is sent; for fewer than thousands of steps, of which
    hundreds are sent uncompressed; or where bytes are cheap, as encoding and decoding take milliseconds. The code has 8
    bits for each selected value: a codec of 8 bits, `bfp:7`, sends the same values in as few bytes with a fraction of
    the error (`softnic reproduce lgc fig14` measures both).
    """

    name = "lgc-ring"

    def _sparse(self, comm: Communicator, given: Layout, step: int, vector: Floats) -> PhaseResult:
        leader = self._random_rank(step, comm.size)
        head = (b"", b"")
        if comm.rank == leader:
            chosen = select(vector, given, self._order)
            measured = scales(vector[chosen], given)
            head = (pack_indices(chosen, given, self._order), measured.tobytes())
        head = comm.bcast(head, leader)
        indices = unpack_indices(head[0], given, self._order)
        factors = spread(np.frombuffer(head[1], np.float32), given)
        selected = vector[indices]
        scaled, last = selected[: given.covered] / factors, selected[given.covered :]
        sent = Sent(last=last.nbytes, covered=sum(map(len, head)) if comm.rank == leader else 0)
        if self._trains(step):
            covered, last = self._train(comm, step, scaled, sent), mean_of(comm, last)
        else:
            autoencoder = self._autoencoder_of(comm.size)
            code = autoencoder.encode(scaled)
            sent.covered += code.nbytes
            both = mean_of(comm, np.concatenate([last, code]))
            last, covered = both[: last.size], autoencoder.decode(both[last.size :], given.covered)
        return PhaseResult(indices, indices, np.concatenate([covered * factors, last]), sent)

    def _train(self, comm: Communicator, step: int, scaled: Floats, sent: Sent) -> Floats:
        """Train the autoencoder for one step. Returns the mean of the ranks' vectors."""
        vectors = np.empty((comm.size, scaled.size), np.float32)
        comm.Allgather(scaled, vectors)
        sent.covered += scaled.nbytes
        autoencoder = self._autoencoder_of(comm.size)
        if comm.rank == TRAINER and np.isfinite(vectors).all():
            sent.loss = autoencoder.learn_aggregate(list(vectors))
        if self._ends_training(step):
            weights = comm.bcast(autoencoder.weights() if comm.rank == TRAINER else b"", TRAINER)
            sent.weights = len(weights) if comm.rank == TRAINER and comm.size > 1 else 0
            autoencoder.load(weights)
        mean: Floats = vectors.mean(axis=0)
        return mean

    def _new_autoencoder(self, decoders: int) -> Autoencoder:
        del decoders  # one decoder reconstructs the mean of any number of ranks
        return Autoencoder(innovation=False, seed=self._seed, rate=self._rate)
