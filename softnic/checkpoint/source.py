"""Serves a state to receivers, over a listening socket of the NIC, while its owner goes on.

The owner offers a state with `offer`, and takes it back with `withdraw` before it changes an array. Bytes are copied
out of the arrays in chunks, under a lock, so that `withdraw` returns within the copy of one chunk after its wait.
Digests are computed when the first receiver asks. Serving is paced: its own CPU and the part of the NIC's CPU that its
bytes cause stay below a share of one core (pacing.py, nic_cpu.py).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import socket as standard
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from softnic import socket
from softnic.checkpoint import manifest, protocol
from softnic.checkpoint.manifest import Bytes, Manifest, StateLayout, TrainingState
from softnic.checkpoint.nic_cpu import NicCpu
from softnic.checkpoint.pacing import CpuBudget
from softnic.checkpoint.protocol import CheckpointError, FrameKind, ProtocolError
from softnic.checkpoint.wire import read_body, read_exactly, read_head
from softnic.comm.bootstrap.launch import job_secret
from softnic.ipc.socket_state import client

CPU_SHARE = 0.25
"""Of one core, for a source and its part of the NIC."""
CHUNK_BYTES = 256 << 10
_BURST_S = 0.15
"""CPU seconds at once: the digests of about 100 MB, and the first pieces."""
_MOST_RECEIVERS = 32
_STALL_S = 5.0
"""A receiver that takes no byte for this time is given up."""
_WAITING_S = 0.5
_MOST_WAIT_S = 600.0
"""A receiver may wait this long for its step."""
_TAG = 0x28


class Withdrawn(Exception):
    """The state may change now."""


class _Offer:
    """A state at a step, made when it is first asked for."""

    def __init__(self, step: int, make: Callable[[], TrainingState], piece_bytes: int) -> None:
        self.step = step
        self._make = make
        self._piece_bytes = piece_bytes
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._state: TrainingState | None = None
        self._withdrawn = False
        self._manifest = b""
        self.layout = StateLayout((), piece_bytes)

    def manifest(self, pause: Callable[[], None]) -> bytes:
        """Return the manifest's bytes. Raises Withdrawn."""
        with self._making:
            if not self._manifest:
                self._manifest = self._described(pause)
        return self._manifest

    def _described(self, pause: Callable[[], None]) -> bytes:
        with self._lock:
            self._check()
            state = self._state = self._make()
        self.layout = StateLayout(state.leaves, self._piece_bytes)
        scratch, digests = np.empty(CHUNK_BYTES, np.uint8), []
        for piece in range(len(self.layout)):
            found = hashlib.sha256()
            for start in range(0, self.layout.size(piece), CHUNK_BYTES):
                found.update(self.read(piece, start, scratch))
            digests.append(found.digest())
            pause()
        return manifest.encode(Manifest(self.step, self._piece_bytes, state.leaves, b"".join(digests)))

    def read(self, piece: int, start: int, scratch: Bytes) -> memoryview:
        """Copy the bytes of a piece from `start` on into `scratch`. Raises Withdrawn."""
        filled = 0
        with self._lock:
            self._check()
            assert self._state is not None
            for part in self.layout.parts(piece, start, start + len(scratch)):
                length = part.stop - part.start
                scratch[filled : filled + length] = self._state.arrays[part.leaf][part.start : part.stop]
                filled += length
        return scratch[:filled].data

    def _check(self) -> None:
        if self._withdrawn:
            raise Withdrawn

    def withdraw(self) -> None:
        """End the offer: no byte is read when this returns."""
        with self._lock:
            self._withdrawn = True
            self._state = None


class StateSource:
    """Serves states of one member of a job.

    Parameters
    ----------
    epoch : str
        Receivers of another epoch are refused: the name of an attempt of a job, up to 256 bytes.
    nic : path-like, optional
        The NIC's control socket; by default the path in SOFTNIC_NIC.
    secret : bytes, optional
        Of the job. Default: SOFTNIC_JOB_SECRET.
    cpu_share : float
        Share of one core that serving may take, with its part of the NIC's CPU.
    compress : bool
        Send floats of 16 and 32 bits by `auto:exact:16` and `auto:exact:32`, which keep every bit.
    piece_bytes : int
        The most bytes of a piece. The same for all sources of a job.

    Raises
    ------
    OSError
        If there is no NIC.
    """

    def __init__(
        self, *, epoch: str = "", nic: str | os.PathLike[str] | None = None, secret: bytes | None = None,
        cpu_share: float = CPU_SHARE, compress: bool = False, piece_bytes: int = manifest.PIECE_BYTES,
    ) -> None:  # fmt: skip
        if len(epoch.encode()) > protocol.MOST_EPOCH_BYTES:
            raise ValueError(f"an epoch of {len(epoch.encode())} bytes: at most {protocol.MOST_EPOCH_BYTES}")
        if not 64 <= piece_bytes <= manifest.MOST_PIECE_BYTES:
            raise ValueError(f"pieces of {piece_bytes} bytes: 64 to {manifest.MOST_PIECE_BYTES}")
        self._epoch = epoch
        self._secret = job_secret(os.environ) if secret is None else secret
        self._compress = compress
        self._piece_bytes = piece_bytes
        self._budget = CpuBudget(cpu_share, _BURST_S, time.monotonic())
        self._budget_lock = threading.Lock()
        self._changed = threading.Condition()
        self._offer: _Offer | None = None
        self._readers: dict[standard.socket, int] = {}
        """The step that each connected receiver takes; -1: none yet."""
        self._closed = False
        self.served_bytes = 0
        """Bytes of pieces that were sent."""
        self._listener = socket.create_server(("", 0), backlog=_MOST_RECEIVERS, nic=nic)
        path = os.fspath(nic) if nic is not None else os.environ[socket.NIC_VARIABLE]
        info = client(path).info()
        self._nic_cpu = NicCpu(path, info.pid)
        self.address: tuple[str, int] = (info.ip, self._listener.getsockname()[1])
        """Where receivers connect."""
        self._thread = threading.Thread(target=self._accept, name="softnic-checkpoint", daemon=True)
        self._thread.start()

    @property
    def cpu_s(self) -> float:
        """CPU seconds that serving has taken so far, with its part of the NIC's."""
        return self._budget.used_s

    def offer(self, step: int, state: TrainingState | Callable[[], TrainingState]) -> None:
        """Serve a state until `withdraw`. Replaces an earlier offer.

        Parameters
        ----------
        step : int
            Receivers ask for it.
        state : TrainingState or callable
            Its arrays must not change before `withdraw` returns. A callable is called by another thread when the first
            receiver asks, or never.
        """
        made = _Offer(step, state if callable(state) else lambda: state, self._piece_bytes)
        with self._changed:
            if self._closed:
                raise CheckpointError("this source was closed")
            before, self._offer = self._offer, made
            self._changed.notify_all()
        if before is not None:
            before.withdraw()

    def withdraw(self, wait_s: float = 0.0) -> None:
        """End the offer. When this returns, arrays may change.

        Parameters
        ----------
        wait_s : float
            Time for receivers that have begun with this step to get the rest.
        """
        with self._changed:
            offer = self._offer
            if offer is None:
                return
            self._changed.wait_for(lambda: offer.step not in self._readers.values(), max(0.0, wait_s))
            if self._offer is offer:
                self._offer = None
        offer.withdraw()

    def close(self) -> None:
        """End the offer, and all connections."""
        self.withdraw()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            connections = list(self._readers)
        for connection in [self._listener, *connections]:
            with contextlib.suppress(OSError):
                connection.shutdown(standard.SHUT_RDWR)
        self._thread.join(_STALL_S)
        self._listener.close()

    def __enter__(self) -> StateSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- threads ----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        self._listener.settimeout(0.5)
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with self._changed:
                full = self._closed or len(self._readers) >= _MOST_RECEIVERS
                if not full:
                    self._readers[connection] = -1
            if full:
                connection.close()
            else:
                threading.Thread(target=self._receiver, args=(connection,), daemon=True).start()

    def _receiver(self, connection: Any) -> None:
        """Serve one receiver until it closes the connection."""
        try:
            connection.settimeout(_STALL_S)
            with contextlib.suppress(OSError, EOFError):  # it left, or stalls
                try:
                    self._greet(connection)
                    self._answer(connection)
                except ProtocolError as error:
                    connection.sendall(protocol.refusal(str(error)))
                except Withdrawn:
                    connection.sendall(protocol.refusal("the state was withdrawn: its owner goes on to the next step"))
        finally:
            with self._changed:
                self._readers.pop(connection, None)
                self._changed.notify_all()
            connection.close()

    def _greet(self, connection: Any) -> None:
        nonce = secrets.token_bytes(protocol.NONCE_BYTES)
        connection.sendall(protocol.greeting(nonce))
        theirs, length = protocol.parse_answer(read_exactly(connection, protocol.ANSWER_BYTES))
        nonces = nonce, theirs
        protocol.check_answer(self._secret, nonces, self._epoch, read_exactly(connection, length))
        connection.sendall(protocol.accepted(self._secret, nonces, self._epoch))

    def _answer(self, connection: Any) -> None:
        """Answer the frames of a receiver that was accepted."""
        offer: _Offer | None = None
        scratch = np.empty(CHUNK_BYTES, np.uint8)
        while True:
            kind, length = read_head(connection)
            body = read_body(connection, length) if kind in (FrameKind.ASK_STEP, FrameKind.ASK_PIECE) else b""
            if kind is FrameKind.ASK_STEP and offer is None:
                offer = self._wait_for(connection, protocol.parse_step(body))
                found = offer.manifest(self._pause_after(0))
                connection.sendall(protocol.frame(FrameKind.DIGEST, manifest.digest(found)))
            elif kind is FrameKind.ASK_MANIFEST and offer is not None:
                connection.sendall(protocol.frame(FrameKind.MANIFEST, offer.manifest(lambda: None)))
            elif kind is FrameKind.ASK_PIECE and offer is not None:
                piece = protocol.parse_piece(body)
                if piece >= len(offer.layout):
                    raise ProtocolError(f"piece {piece} of {len(offer.layout)}")
                self._send(connection, offer, piece, scratch)
            else:
                raise ProtocolError(f"a {kind.name} that is out of place")

    def _wait_for(self, connection: Any, step: int) -> _Offer:
        """Return the offer of a step, as soon as there is one."""
        until, told = time.monotonic() + _MOST_WAIT_S, False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._offer or self._closed, _WAITING_S if told else 0)
                offer = self._offer
                if offer is not None and offer.step == step:
                    self._readers[connection] = step
                    return offer
                if offer is not None and offer.step > step:
                    raise ProtocolError(f"step {step} is over: the source is at step {offer.step}")
                if self._closed or time.monotonic() > until:
                    raise ProtocolError(f"there is no state of step {step}")
                if told and offer is not None:  # of an earlier step
                    self._changed.wait(_WAITING_S)
            connection.sendall(protocol.frame(FrameKind.WAITING))
            told = True

    def _send(self, connection: Any, offer: _Offer, piece: int, scratch: Bytes) -> None:
        size, codec = offer.layout.size(piece), offer.layout.codecs[piece] if self._compress else ""
        data = offer.read(piece, 0, scratch)
        connection.sendall(protocol.piece_head(piece, size))
        if codec:
            connection.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, f"auto:{codec}".encode())
            connection.setsockopt(standard.IPPROTO_IP, standard.IP_TOS, _TAG)
        start, pause = 0, self._pause_after
        while True:
            connection.sendall(data)
            pause(len(data))()
            start += len(data)
            if start >= size:
                break
            try:
                data = offer.read(piece, start, scratch)
            except Withdrawn:  # no frame fits in here
                raise ConnectionAbortedError(errno.ECONNABORTED, "withdrawn amid a piece") from None
        if codec:
            connection.setsockopt(standard.IPPROTO_IP, standard.IP_TOS, 0)

    def _pause_after(self, sent: int) -> Callable[[], None]:
        """Return what charges the CPU of this thread since its last charge, and that of `sent` bytes in the NIC."""

        def pause() -> None:
            now = time.monotonic()
            with self._budget_lock:
                self.served_bytes += sent
                used = self._nic_cpu.own(time.thread_time()) + self._nic_cpu.of(sent, now)
                pause_s = self._budget.charge(used, now)
            if pause_s > 0.001:
                time.sleep(min(pause_s, _STALL_S / 2))

        return pause
