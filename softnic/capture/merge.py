"""Merges the block streams of several NICs into one stream ordered by time.

Blocks are held for one round, then written in order of time up to the youngest block of the round before. The caller
sets the length of rounds, which must exceed the time that a NIC takes to deliver its blocks. Blocks are delimited by
their lengths. Statistics are the last blocks, one an interface: several sources may have the same, the queues of a NIC.
"""

from __future__ import annotations

import struct
from operator import itemgetter

from softnic.capture import pcapng
from softnic.capture.capture_file import CaptureError

_HEAD = struct.Struct("<IIIII")
_SMALLEST = 24
_LARGEST = 1 << 20


class Merger:
    """Call `feed` with received bytes, `take` at the end of a round, and `finish` at the end."""

    def __init__(self) -> None:
        self._partial: dict[int, bytes] = {}
        self._held: list[tuple[int, memoryview]] = []
        self._statistics: dict[int, pcapng.InterfaceStatistics] = {}
        self._newest = -1
        self._horizon = -1
        self.held_bytes = 0
        self.packets = 0
        self.dropped = 0
        """Packets passed on, and packets dropped according to the NICs' statistics."""

    def feed(self, source: int, data: bytes) -> None:
        """Add the next bytes of one source. Raises CaptureError if they are not blocks of a NIC."""
        rest = self._partial.get(source, b"")
        view = memoryview(rest + data if rest else data)
        at, size, newest, packets, held = 0, len(view), self._newest, 0, 0
        while size - at >= _SMALLEST:
            kind, length, _, high, low = _HEAD.unpack_from(view, at)
            if not _SMALLEST <= length <= _LARGEST or length & 3:
                raise CaptureError(at, f"a NIC sent a block with a length of {length} bytes")
            if at + length > size:
                break
            time = high << 32 | low
            if time > newest:
                newest = time
            if kind == pcapng.ENHANCED_PACKET:
                packets += 1
            found = pcapng.statistics_of(view[at : at + length]) if kind == pcapng.INTERFACE_STATISTICS else None
            if found is None:
                self._held.append((time, view[at : at + length]))
                held += length
            else:
                self.dropped += found.dropped
                before = self._statistics.get(found.interface)
                self._statistics[found.interface] = found if before is None else before.plus(found)
            at += length
        self._partial[source] = bytes(view[at:])
        self._newest = newest
        self.packets += packets
        self.held_bytes += held

    def take(self) -> bytes:
        """End a round. Returns, in order of time, the blocks older than any expected later."""
        self._held.sort(key=itemgetter(0))
        horizon = self._horizon
        count = next((i for i, (time, _) in enumerate(self._held) if time > horizon), len(self._held))
        self._horizon = self._newest
        return self._release(count)

    def finish(self) -> bytes:
        """Return the remaining blocks. An incomplete block at the end of a source is dropped."""
        self._held.sort(key=itemgetter(0))
        statistics = b"".join(self._statistics[interface].block() for interface in sorted(self._statistics))
        return self._release(len(self._held)) + statistics

    def _release(self, count: int) -> bytes:
        blocks = b"".join(block for _, block in self._held[:count])
        del self._held[:count]
        self.held_bytes -= len(blocks)
        return blocks
