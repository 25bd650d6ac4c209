"""LGC for a parameter server: one worker's code represents the common part of all (section IV-A, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softnic.gradients import indices as coding
from softnic.gradients.lgc.autoencoder import Autoencoder
from softnic.gradients.lgc.phases import TRAINER, Lgc, PhaseResult, Sent
from softnic.gradients.lgc.selection import Layout, largest, pack_indices, scales, select, spread, unpack_indices
from softnic.gradients.method import Floats, MethodError
from softnic.mpi.communicator import Communicator

MASTER = TRAINER
_UP, _WEIGHTS = 1, 2
"""Tags of messages."""


@dataclass(frozen=True)
class WorkerMessage:
    """A worker's message to the master in a step."""

    indices: bytes
    last: bytes
    """The last layer's selected values, float32."""
    values: bytes = b""
    """Phase 2: the selected values of the covered layers, float32."""
    scales: bytes = b""
    """Phase 3: one float32 for each covered parameter."""
    innovation: bytes = b""
    """A bit for each covered selected value, whether it belongs to the innovation; then those that do, float32."""
    code: bytes = b""
    """Of the encoding worker only."""

    @property
    def covered_bytes(self) -> int:
        return sum(map(len, (self.indices, self.values, self.scales, self.innovation, self.code)))


class LgcServer(Lgc):
    """Learned gradient compression for a parameter server (Abrahamyan, Chen, Bekoulis, Deligiannis, 2021).

    Rank 0 is a worker and the master. On every rank, by parameter, with accumulated gradients v (zeros at first), and
    u = g without momentum:

    1. u = m u + g. The first layer's mean is that of u, exactly, in all phases, by all-reduce.
    2. Phase 1, `full` steps: so is every other layer's.
    3. Later: v += u. Each worker selects the largest 0.1 % of each parameter of its v, in order of value, and sends
       their indices, and the last layer's values. v and u become zero there.
    4. Phase 2, `learn` steps: it sends the other layers' values too. The master trains the autoencoder: a decoder for
       each worker reconstructs its vector, divided by the root mean square of each parameter, from the code of a
       randomly chosen node and the worker's innovation, the largest tenth; the codes of all nodes are trained to be
       similar. At the end the last rank gets the encoder's weights.
    5. Phase 3: each worker sends the root mean squares and its innovation, the last rank its vector's code as well. The
       master reconstructs every worker's vector from that code and the worker's innovation.
    6. The master sums the values at their indices, and sends the mean to all.

    Points that the paper leaves open or contradicts:
    - Its text has an innovation of 0.001 % of the gradients, Algorithm 1 of a tenth of those selected: 0.01 %. Here it
      is `innovation`, a tenth.
    - Whether all workers send the indices of their selected values. They must: a decoder gives values, not indices.
      Table VI of the paper does not count them: 0.021 MB for ResNet101, whose 42,500 indices alone take at least
      0.06 MB.
    - Algorithm 1 adds to v what it contains already, which counts gradients twice; here it is as in DGC.

    Not worthwhile with many workers, as the master decodes for one after the other; nor where `LgcRing` is not.
    """

    name = "lgc-ps"

    def __init__(
        self, share: float = 0.001, *, innovation: float = 0.1, similarity: float = 0.5, **others: float
    ) -> None:
        """`innovation`: fraction of the selected values. `similarity`: lambda_2 of equation 7. Others: see `Lgc`."""
        super().__init__(share, **others)  # type: ignore[arg-type]
        if not 0 < innovation <= 1 or similarity < 0:
            raise MethodError(f"innovation {innovation} must be in (0, 1], similarity {similarity} not below 0")
        self._innovation, self._similarity = innovation, similarity

    def _sparse(self, comm: Communicator, given: Layout, step: int, vector: Floats) -> PhaseResult:
        indices = select(vector, given, self._order)
        report = self._report(comm, given, step, pack_indices(indices, given, self._order), vector[indices])
        sent = Sent(covered=report.covered_bytes, last=len(report.last))
        down = (b"", b"")
        if comm.rank == MASTER:
            reports = [report, *(comm.recv(source=rank, tag=_UP) for rank in range(1, comm.size))]
            down = self._aggregate(comm, given, step, reports, sent)
        else:
            comm.send(report, MASTER, tag=_UP)
        down = comm.bcast(down, MASTER)
        sent.down = sum(map(len, down))
        if self._ends_training(step):
            self._send_encoder(comm, sent)
        values = np.frombuffer(down[1], np.float32)
        everywhere = coding.decode(down[0], values.size, vector.size).astype(np.uint32)
        return PhaseResult(indices, everywhere, values, sent)

    def _report(self, comm: Communicator, given: Layout, step: int, indices: bytes, selected: Floats) -> WorkerMessage:
        covered, last = selected[: given.covered], selected[given.covered :]
        if self._trains(step):
            return WorkerMessage(indices, last.tobytes(), values=covered.tobytes())
        measured = scales(covered, given)
        chosen = largest(covered, given, self._innovation)
        code = b""
        if comm.rank == _encoding_rank(comm):
            code = self._autoencoder_of(comm.size).encode(covered / spread(measured, given)).tobytes()
        innovation = np.packbits(chosen).tobytes() + covered[chosen].tobytes()
        return WorkerMessage(indices, last.tobytes(), scales=measured.tobytes(), innovation=innovation, code=code)

    def _aggregate(
        self, comm: Communicator, given: Layout, step: int, reports: list[WorkerMessage], sent: Sent
    ) -> tuple[bytes, bytes]:
        """Return the encoded indices and the values of the mean of all workers, on the master."""
        if self._trains(step):
            vectors = [np.frombuffer(report.values, np.float32) for report in reports]
            sent.loss = self._train(comm, given, step, vectors)
        else:
            code = np.frombuffer(reports[_encoding_rank(comm)].code, np.float32).copy()
            vectors = [self._reconstruct(comm, given, rank, report, code) for rank, report in enumerate(reports)]
        total = np.zeros(given.starts[-1], np.float32)
        anywhere = np.zeros(given.starts[-1], np.bool_)
        for report, covered in zip(reports, vectors, strict=True):
            indices = unpack_indices(report.indices, given, self._order)
            total[indices] += np.concatenate([covered, np.frombuffer(report.last, np.float32)])
            anywhere[indices] = True
        everywhere = np.flatnonzero(anywhere).astype(np.int64)
        return coding.encode(everywhere), (total[everywhere] * np.float32(1 / comm.size)).tobytes()

    def _train(self, comm: Communicator, given: Layout, step: int, vectors: list[Floats]) -> float:
        """Train the autoencoder for one step. Returns the reconstruction loss."""
        if not all(np.isfinite(vector).all() for vector in vectors):
            return 0.0
        scaled = [vector / spread(scales(vector, given), given) for vector in vectors]
        innovations = [
            np.where(largest(vector, given, self._innovation), each, np.float32(0))
            for vector, each in zip(vectors, scaled, strict=True)
        ]
        autoencoder = self._autoencoder_of(comm.size)
        return autoencoder.learn_decoupled(scaled, innovations, self._random_rank(step, comm.size), self._similarity)[0]

    def _reconstruct(self, comm: Communicator, given: Layout, rank: int, report: WorkerMessage, code: Floats) -> Floats:
        """Reconstruct a worker's selected values by its decoder."""
        factors = spread(np.frombuffer(report.scales, np.float32), given)
        bits = -(-given.covered // 8)
        chosen = np.unpackbits(np.frombuffer(report.innovation[:bits], np.uint8), count=given.covered).astype(np.bool_)
        innovation = np.zeros(given.covered, np.float32)
        innovation[chosen] = np.frombuffer(report.innovation[bits:], np.float32) / factors[chosen]
        return self._autoencoder_of(comm.size).decode(code, given.covered, innovation, rank) * factors

    def _send_encoder(self, comm: Communicator, sent: Sent) -> None:
        """Send the encoder's weights to the encoding worker."""
        encoding = _encoding_rank(comm)
        if encoding == MASTER:
            return
        if comm.rank == MASTER:
            weights = self._autoencoder_of(comm.size).weights(encoder_only=True)
            comm.send(weights, encoding, tag=_WEIGHTS)
            sent.weights = len(weights)
        elif comm.rank == encoding:
            self._autoencoder_of(comm.size).load(comm.recv(source=MASTER, tag=_WEIGHTS), encoder_only=True)

    def _new_autoencoder(self, decoders: int) -> Autoencoder:
        return Autoencoder(decoders, innovation=True, seed=self._seed, rate=self._rate)


def _encoding_rank(comm: Communicator) -> int:
    """Return the rank that encodes: not the master, so that the code crosses the network."""
    return comm.size - 1
