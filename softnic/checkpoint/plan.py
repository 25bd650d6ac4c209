"""Which source is asked for which piece: sans-IO, driven by the receiver's threads under its lock.

1. A source that has room asks for the first piece that nobody was asked for: fast sources ask more often.
2. A source that fails gives its pieces back; they are asked of the others, first.
3. When every piece was asked for, a source without work asks again for the piece that another one has had longest, if
   that is twice the time that this source takes for one. Whichever copy arrives first counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field

_UNKNOWN_S = 0.25
"""Time for a piece of a source that has sent none."""


@dataclass
class SourceShare:
    """What one source was asked for, and has sent."""

    pieces: int = 0
    """That it sent first."""
    bytes: int = 0
    asked: int = 0
    asked_again: int = 0
    """Pieces that another source had been asked for before."""
    piece_s: float = 0.0
    """Smoothed time between two of its pieces; 0: not known."""
    asked_at: dict[int, float] = field(default_factory=dict)
    """Pieces that it was asked for and has not sent."""
    last_s: float = 0.0
    """When it last sent a piece, or was asked with nothing outstanding."""


class PullPlan:
    """The pieces of a transfer.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each piece.
    held : collection of int
        Pieces that the receiver has already.
    """

    def __init__(self, sizes: Sequence[int], held: Collection[int] = ()) -> None:
        self._sizes = sizes
        self._missing = {piece for piece in range(len(sizes)) if piece not in held}
        self._free = deque(sorted(self._missing))
        self._asked: set[int] = set()
        """Pieces that were asked for, of anybody, at any time."""
        self.shares: dict[Hashable, SourceShare] = {}
        self.received = 0
        """Bytes received in this transfer."""
        self.wanted = sum(sizes[piece] for piece in self._missing)

    @property
    def complete(self) -> bool:
        """Whether every piece was received."""
        return not self._missing

    @property
    def missing(self) -> int:
        """Number of pieces that were not received."""
        return len(self._missing)

    def take(self, source: Hashable, now: float) -> int | None:
        """Return the next piece to ask a source for. None: nothing for now."""
        share = self.shares.setdefault(source, SourceShare())
        piece = self._free.popleft() if self._free else self._late(share, now)
        if piece is None:
            return None
        if not share.asked_at:
            share.last_s = now
        share.asked_at[piece] = now
        share.asked += 1
        share.asked_again += piece in self._asked
        self._asked.add(piece)
        return piece

    def _late(self, share: SourceShare, now: float) -> int | None:
        """Return the piece that another source has had longest, if it is late."""
        if share.asked_at:
            return None
        holders: dict[int, list[float]] = {}
        for other in self.shares.values():
            for piece, asked_at in other.asked_at.items():
                if piece in self._missing:
                    holders.setdefault(piece, []).append(asked_at)
        single = [(times[0], piece) for piece, times in holders.items() if len(times) == 1]
        if not single:
            return None
        asked_at, piece = min(single)
        return piece if now - asked_at > 2 * (share.piece_s or _UNKNOWN_S) else None

    def is_asked(self, source: Hashable, piece: int) -> bool:
        """Return whether a source was asked for a piece that it has not sent."""
        return source in self.shares and piece in self.shares[source].asked_at

    def is_wanted(self, piece: int) -> bool:
        """Return whether a piece is still missing."""
        return piece in self._missing

    def arrived(self, source: Hashable, piece: int, now: float) -> bool:
        """Count a piece from a source. Returns False if another source was faster."""
        share = self.shares[source]
        del share.asked_at[piece]
        taken_s = now - share.last_s
        share.piece_s = taken_s if not share.piece_s else share.piece_s + (taken_s - share.piece_s) / 4
        share.last_s = now
        if piece not in self._missing:
            return False
        self._missing.remove(piece)
        share.pieces += 1
        share.bytes += self._sizes[piece]
        self.received += self._sizes[piece]
        return True

    def drop(self, source: Hashable) -> int:
        """Give back the pieces of a source that has failed. Returns their number."""
        share = self.shares.get(source)
        if share is None:
            return 0
        elsewhere = {piece for other in self.shares.values() if other is not share for piece in other.asked_at}
        back = sorted(piece for piece in share.asked_at if piece in self._missing and piece not in elsewhere)
        self._free.extendleft(reversed(back))
        share.asked_at.clear()
        return len(back)
