"""Receives a state from several sources at once: one thread for each, which asks for pieces as its source sends them.

1. All sources are connected to, and report the digest of their manifest. The digest that most report is taken; of
   equally many, that of the source that stands first. Sources with another one are left out, and named.
2. One of them sends the manifest, and the caller gives the arrays.
3. Pieces are asked for as plan.py says. A piece lands in a buffer of its thread, and goes into the arrays only if its
   digest is right: memory is the state, and a piece for each source. A source that stalls, lies or ends is given up,
   and its missing pieces are asked of the others.

What was received before a failure stays in the `Partial`: with it, a later call asks only for pieces whose digest is
another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softnic import socket
from softnic.checkpoint import manifest, protocol
from softnic.checkpoint.manifest import Bytes, Leaf, Manifest, ManifestError, StateLayout, TrainingState
from softnic.checkpoint.plan import PullPlan, SourceShare
from softnic.checkpoint.progress import ReceiptLines, ReceiptPhase, ReceiptProgress, Report
from softnic.checkpoint.protocol import CheckpointError, FrameKind, ProtocolError
from softnic.checkpoint.wire import read_body, read_exactly, read_head, read_into
from softnic.comm.bootstrap.launch import job_secret

Address = tuple[str, int]
Allocate = Callable[[Sequence[Leaf]], Sequence[Bytes]]
"""Returns a writable array of uint8 for each leaf, one-dimensional and of its size."""

TIMEOUT_S = 60.0
STALL_S = 5.0
_AHEAD = 2
"""Pieces that a source is asked for at a time."""
_OTHERS_S = 0.5
"""Time for further sources to report their digest, after the first one has."""
_LOOK_S = 0.02
_MOST_SOURCES = 64


def over_nic(address: Address, timeout_s: float, nic: str | os.PathLike[str] | None) -> Any:
    """Connect to a source through the NIC."""
    return socket.create_connection(address, timeout=timeout_s, nic=nic)


@dataclass(frozen=True)
class Terms:
    """How to receive.

    Parameters
    ----------
    epoch : str
        The same as the sources'.
    nic : path-like, optional
        The NIC's control socket; by default the path in SOFTNIC_NIC.
    secret : bytes, optional
        Of the job. Default: SOFTNIC_JOB_SECRET.
    timeout_s : float
        For the whole receipt.
    stall_s : float
        A source that sends nothing for this time is given up.
    connect : callable
        Makes the connection to a source, of an address, a timeout and `nic`.
    """

    epoch: str = ""
    nic: str | os.PathLike[str] | None = None
    secret: bytes | None = None
    timeout_s: float = TIMEOUT_S
    stall_s: float = STALL_S
    connect: Callable[[Address, float, str | os.PathLike[str] | None], Any] = over_nic


@dataclass
class Partial:
    """What was received so far: arrays and the digests of the pieces in them. Give it to the next call."""

    leaves: Sequence[Leaf] = ()
    piece_bytes: int = 0
    arrays: Sequence[Bytes] = ()
    digests: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Receipt:
    """A state that was received, and how."""

    state: TrainingState
    step: int
    progress: ReceiptProgress
    """At the end."""
    shares: dict[str, SourceShare]
    """Of each source, by its address."""
    held_pieces: int
    """Pieces that the Partial already had."""


class _Link:
    """The thread and the connection of one source."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.name = f"{address[0]}:{address[1]}"
        self.digest: bytes | None = None
        self.is_waiting = False
        """Its source has no state of the step yet."""
        self.lost = ""
        self.connection: Any = None
        self.thread: threading.Thread | None = None


class _Receipt:
    """One call of `receive`; the condition guards all fields."""

    def __init__(self, sources: Iterable[Address], step: int, terms: Terms, report: Report) -> None:
        self.links = [_Link(address) for address in dict.fromkeys(sources)]
        self.step, self._terms, self._report = step, terms, report
        self._secret = job_secret(os.environ) if terms.secret is None else terms.secret
        self._stall_s = min(terms.stall_s, max(terms.timeout_s, 0.001))
        self.began = time.monotonic()
        self.changed = threading.Condition()
        self.chosen: bytes | None = None
        self.manifest: tuple[Manifest, StateLayout] | None = None
        self._fetcher: _Link | None = None
        """Which asks its source for the manifest."""
        self.plan: PullPlan | None = None
        self.arrays: Sequence[Bytes] = ()
        self.kept: dict[int, bytes] = {}
        self.ended = False
        self._starts: dict[ReceiptPhase, float] = {}

    # -- the caller's thread ----------------------------------------------------------------------------------------

    def run(self, allocate: Allocate, partial: Partial) -> Receipt:
        """Receive the state. Raises CheckpointError."""
        self.enter(ReceiptPhase.CONNECT)
        for link in self.links:
            link.thread = threading.Thread(target=self._source, args=(link,), daemon=True)
            link.thread.start()
        try:
            self._choose()
            self.enter(ReceiptPhase.MANIFEST)
            self._wait(lambda: self.manifest is not None)
            held = self._prepare(allocate, partial)
            self.enter(ReceiptPhase.TRANSFER)
            assert self.plan is not None
            self._wait(lambda: self.plan is not None and self.plan.complete)
            self.enter(ReceiptPhase.LOAD)
        finally:
            self._end()
        assert self.manifest is not None
        leaves = self.manifest[0].leaves
        state = TrainingState(list(zip(leaves, self.arrays, strict=True)))
        shares = {link.name: self.plan.shares.get(link, SourceShare()) for link in self.links}
        return Receipt(state, self.step, self.progress(), shares, held)

    def enter(self, phase: ReceiptPhase) -> None:
        """Begin a phase."""
        with self.changed:
            self._starts[phase] = time.monotonic()
            shown = self.progress()
        self._report(shown)

    def progress(self) -> ReceiptProgress:
        """Return how far the receipt is."""
        now = time.monotonic()
        starts = list(self._starts.items())
        ends = [*(start for _, start in starts[1:]), now]
        plan = self.plan
        total = self.manifest[1].total if self.manifest else 0
        sources = {link.name: plan.shares[link].bytes for link in self.links if plan and link in plan.shares}
        return ReceiptProgress(
            step=self.step,
            phase=starts[-1][0],
            seconds=now - self.began,
            phases={phase: end - start for (phase, start), end in zip(starts, ends, strict=True)},
            total=total,
            held=total - plan.wanted if plan else 0,
            received=plan.received if plan else 0,
            sources=sources,
            lost={link.name: link.lost for link in self.links if link.lost},
        )

    def _choose(self) -> None:
        """Wait for digests, and take the one that most sources report."""
        first = 0.0

        def settled() -> bool:
            nonlocal first
            reported = [link for link in self.links if link.digest]
            first = first or (time.monotonic() if reported else 0.0)
            pending = [link for link in self.links if not (link.digest or link.lost or link.is_waiting)]
            return bool(reported) and (not pending or time.monotonic() - first > _OTHERS_S)

        self._wait(settled)
        with self.changed:
            digests = [link.digest for link in self.links if link.digest]
            self.chosen = Counter(digests).most_common(1)[0][0]
            self.changed.notify_all()

    def _prepare(self, allocate: Allocate, partial: Partial) -> int:
        """Get the arrays, and make the plan of what is missing. Returns the number of pieces held."""
        assert self.manifest is not None
        described, layout = self.manifest
        if (partial.leaves, partial.piece_bytes) != (described.leaves, described.piece_bytes):
            partial.arrays = allocate(described.leaves)
            partial.leaves, partial.piece_bytes = described.leaves, described.piece_bytes
            partial.digests = {}
        TrainingState(list(zip(described.leaves, partial.arrays, strict=True)))  # checks their sizes
        held = {
            piece
            for piece, found in partial.digests.items()
            if found == described.digest_of(piece) == _digest_of(layout, piece, partial.arrays)
        }
        for piece in set(partial.digests) - held:
            del partial.digests[piece]
        with self.changed:
            self.arrays, self.kept = partial.arrays, partial.digests
            self.plan = PullPlan([layout.size(piece) for piece in range(len(layout))], held)
            self.changed.notify_all()
        return len(held)

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Wait for a condition, and report every second. Raises CheckpointError."""
        told = time.monotonic()
        while True:
            with self.changed:
                if is_over():
                    return
                self.changed.wait(0.1)
                shown = self.progress()
                failed = all(link.lost for link in self.links)
                over = is_over()
            now = time.monotonic()
            if over:
                return
            if now - self.began > self._terms.timeout_s:
                lost = "".join(f"; {name}: {why}" for name, why in shown.lost.items())
                raise CheckpointError(
                    f"the state of step {self.step} timed out after {self._terms.timeout_s:g} s in the phase "
                    f"{shown.phase.value}{lost}"
                )
            if failed:
                lost = "; ".join(f"{name}: {why}" for name, why in shown.lost.items())
                raise CheckpointError(f"no source has the state of step {self.step}: {lost}")
            if now - told > 1:
                told = now
                self._report(shown)

    def _end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()
            connections = [link.connection for link in self.links if link.connection is not None]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for link in self.links:
            if link.thread is not None:
                link.thread.join(self._stall_s + 1)

    # -- the thread of a source -------------------------------------------------------------------------------------

    def _source(self, link: _Link) -> None:
        try:
            self._pull(link)
        except TimeoutError:
            self._lose(link, f"timed out: it has sent nothing for {self._stall_s:g} s")
        except (ConnectionResetError, BrokenPipeError):
            self._lose(link, "the connection was closed")
        except (OSError, EOFError, ProtocolError, ManifestError) as error:
            self._lose(link, str(error))
        finally:
            if link.connection is not None:
                link.connection.close()

    def _lose(self, link: _Link, why: str) -> None:
        with self.changed:
            if not self.ended:
                link.lost = why or "it ended"
                if self._fetcher is link:
                    self._fetcher = None
                if self.plan is not None:
                    self.plan.drop(link)
            self.changed.notify_all()

    def _pull(self, link: _Link) -> None:
        connection = self._terms.connect(link.address, self._stall_s, self._terms.nic)
        with self.changed:
            link.connection = connection
            if self.ended:
                return
        self._greet(connection)
        connection.sendall(protocol.ask_step(self.step))
        digest = self._expect(connection, FrameKind.DIGEST, link)
        with self.changed:
            link.digest = digest
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.chosen or self.ended, self._terms.timeout_s)
            if not self.ended and digest != self.chosen:
                raise ProtocolError("its state differs from that of most other sources, or of the first")
        self._fetch_manifest(link, connection)
        if not self.ended:
            self._pull_pieces(link, connection)

    def _greet(self, connection: Any) -> None:
        theirs = protocol.parse_greeting(read_exactly(connection, protocol.GREETING_BYTES))
        nonces = theirs, secrets.token_bytes(protocol.NONCE_BYTES)
        connection.sendall(protocol.answer(self._secret, *nonces, self._terms.epoch))
        protocol.check_accepted(self._secret, nonces, self._terms.epoch, self._expect(connection, FrameKind.ACCEPTED))

    def _expect(self, connection: Any, wanted: FrameKind, waiting: _Link | None = None) -> bytes:
        """Return the body of the next frame, after any WAITING of a source that may wait. Raises ProtocolError."""
        while True:
            kind, length = read_head(connection)
            if kind is FrameKind.REFUSED:
                raise ProtocolError(f"it refuses: {read_body(connection, length).decode(errors='replace')}")
            if kind is wanted:
                return read_body(connection, length)
            if kind is FrameKind.WAITING and waiting is not None and not self.ended:
                with self.changed:
                    waiting.is_waiting = True
                    self.changed.notify_all()
            else:
                raise ProtocolError(f"a {kind.name} in place of a {wanted.name}")

    def _fetch_manifest(self, link: _Link, connection: Any) -> None:
        """Have the manifest, from this source or another one."""
        with self.changed:
            self.changed.wait_for(lambda: self.manifest or self.ended or self._fetcher is None, self._terms.timeout_s)
            if self.manifest is None and not self.ended:
                self._fetcher = link
            else:
                return
        connection.sendall(protocol.frame(FrameKind.ASK_MANIFEST))
        data = self._expect(connection, FrameKind.MANIFEST)
        if manifest.digest(data) != self.chosen:
            raise ProtocolError("its manifest has not the digest that it reported")
        found = manifest.decode(data)
        if found[0].step != self.step:
            raise ProtocolError(f"its manifest is of step {found[0].step}")
        with self.changed:
            self.manifest = found
            self.changed.notify_all()

    def _pull_pieces(self, link: _Link, connection: Any) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.plan or self.ended, self._terms.timeout_s)
            if self.plan is None or self.manifest is None or self.ended:
                return
            plan, (described, layout) = self.plan, self.manifest
        scratch = np.empty(max((layout.size(piece) for piece in range(len(layout))), default=0), np.uint8)
        view, asked = scratch.data, deque[int]()
        while True:
            with self.changed:
                wanted: list[int] = []
                while not self.ended and len(asked) + len(wanted) < _AHEAD:
                    piece = plan.take(link, time.monotonic())
                    if piece is None:
                        break
                    wanted.append(piece)
                if self.ended or (plan.complete and not asked):
                    return
                if not asked and not wanted:
                    self.changed.wait(_LOOK_S)
                    continue
            connection.sendall(b"".join(map(protocol.ask_piece, wanted)))
            asked.extend(wanted)
            self._receive_piece(connection, asked[0], view[: layout.size(asked[0])])
            piece = asked.popleft()
            data = scratch[: layout.size(piece)]
            if hashlib.sha256(data.data).digest() != described.digest_of(piece):
                raise ProtocolError(f"piece {piece} has not the digest of the manifest")
            with self.changed:
                if self.ended:
                    return
                if plan.arrived(link, piece, time.monotonic()):
                    self._place(layout, piece, data)
                    self.kept[piece] = described.digest_of(piece)
                if plan.complete:
                    self.changed.notify_all()

    def _receive_piece(self, connection: Any, piece: int, target: memoryview) -> None:
        kind, length = read_head(connection)
        if kind is FrameKind.REFUSED:
            raise ProtocolError(f"it refuses: {read_body(connection, length).decode(errors='replace')}")
        if kind is not FrameKind.PIECE or length != protocol.PIECE_HEAD_BYTES + len(target):
            raise ProtocolError(f"a {kind.name} of {length} bytes in place of piece {piece}")
        sent = protocol.parse_piece(read_exactly(connection, protocol.PIECE_HEAD_BYTES))
        if sent != piece:
            raise ProtocolError(f"piece {sent} in place of piece {piece}")
        read_into(connection, target)

    def _place(self, layout: StateLayout, piece: int, data: Bytes) -> None:
        start = 0
        for part in layout.parts(piece):
            length = part.stop - part.start
            self.arrays[part.leaf][part.start : part.stop] = data[start : start + length]
            start += length


def _digest_of(layout: StateLayout, piece: int, arrays: Sequence[Bytes]) -> bytes:
    """Return the digest of what lies in the arrays: their owner may have changed them since."""
    found = hashlib.sha256()
    for part in layout.parts(piece):
        found.update(arrays[part.leaf][part.start : part.stop].data)
    return found.digest()


def _fresh(leaves: Sequence[Leaf]) -> list[Bytes]:
    return [np.empty(leaf.nbytes, np.uint8) for leaf in leaves]


def receive(
    sources: Iterable[Address],
    step: int,
    terms: Terms | None = None,
    *,
    allocate: Allocate = _fresh,
    partial: Partial | None = None,
    report: Report | None = None,
) -> Receipt:
    """Receive a state from sources that have it.

    Parameters
    ----------
    sources : iterable of (str, int)
        Addresses of sources, up to 64. Where states differ and no majority agrees, the first one's counts.
    step : int
        The step of the state.
    terms : Terms, optional
        Epoch, secret, NIC and time limits.
    allocate : callable, optional
        Takes the leaves, and returns an array of uint8 for each, which the state is written into. Default: new ones.
    partial : Partial, optional
        What an earlier call has received; filled by this one.
    report : callable, optional
        Called with a ReceiptProgress at each phase and each second. Default: lines on standard error, after one second.

    Returns
    -------
    Receipt
        The state, bit for bit that of the sources, and what each of them has sent.

    Raises
    ------
    CheckpointError
        If no source is left, or time is over. The text has the reason of each source.
    """
    found = list(sources)
    if not 0 < len(found) <= _MOST_SOURCES:
        raise ValueError(f"{len(found)} sources: 1 to {_MOST_SOURCES} are expected")
    receipt = _Receipt(found, step, terms or Terms(), report or ReceiptLines())
    return receipt.run(allocate, Partial() if partial is None else partial)
