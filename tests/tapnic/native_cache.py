"""The retransmit cache in C, with the interface of the one in Python (reference_retransmit_cache.py)."""

from __future__ import annotations

from typing import Any

from softnic._native import ffi, lib
from softnic.tcp import seq
from tests.tapnic.reference_retransmit_cache import CUT, TaggedRange, TxPart


class NativeCache:
    """An `sn_retransmit_cache`."""

    def __init__(self, iss: int) -> None:
        self._iss = iss
        self._c = ffi.gc(ffi.new("sn_retransmit_cache *"), lib.sn_retransmit_cache_close)
        self._parts = ffi.new("sn_tx_parts *")
        assert lib.sn_retransmit_cache_open(self._c, iss) == 0

    @property
    def cached_bytes(self) -> int:
        return int(lib.sn_retransmit_cached_bytes(self._c))

    @property
    def capacity(self) -> int:
        """Ranges for which there is memory."""
        return int(self._c.capacity)

    def on_ack(self, number: int) -> None:
        lib.sn_retransmit_acknowledge(self._c, number)

    def begin(self, number: int, payload: memoryview, tos: int, tagged: bool, block: int = CUT) -> list[Any]:
        """Return the parts of a segment as C lists them, in use until `give_back`."""
        self._payload = ffi.from_buffer("uint8_t[]", payload)  # which C does not copy
        chosen = tos if tagged else lib.SN_PLAIN_BYTES
        segment = ffi.new("sn_tx_segment *", (number, self._payload, len(payload), chosen, block))
        assert lib.sn_retransmit_parts(self._c, segment, self._parts) == 0
        return [self._parts.items[index] for index in range(self._parts.count)]

    def give_back(self) -> None:
        lib.sn_retransmit_give_back(self._c)

    def parts(self, number: int, payload: memoryview, tos: int, tagged: bool, block: int = CUT) -> list[TxPart]:
        found = [self._part(part) for part in self.begin(number, payload, tos, tagged, block)]
        self.give_back()
        return found

    def _part(self, part: Any) -> TxPart:
        position = seq.position(self._iss, part.seq, self._c.una)
        ranges = (self._c.ranges[self._c.first + index] for index in range(self._c.count))
        owner = next(each for each in ranges if each.end > position)
        assert owner.tos == part.tos
        tagged_range = None
        if owner.tos != lib.SN_PLAIN_BYTES:
            origin = None if owner.origin == lib.SN_UNKNOWN_ORIGIN else owner.origin
            tagged_range = TaggedRange(owner.tos, origin, owner.block)
        found = TxPart(position, memoryview(bytes(ffi.buffer(part.payload, part.length))), tagged_range, part.coded)
        assert found.block_offset == part.block_offset
        return found
