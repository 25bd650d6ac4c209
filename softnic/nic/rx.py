"""Parses received batches: checks frames, joins them into runs, and reads or decodes their payloads.

One C call checks a batch and joins neighbours of one flow into runs (`sn_parse`); one more per run gathers or decodes
it. All methods refer to the batch parsed last.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from softnic._native import ffi, lib
from softnic.nic.counters import NicCounters
from softnic.nic.flows import NicFlow
from softnic.nic.offload import OffloadTable
from softnic.packet.frames import Frames

Run = tuple[int, ...]
"""The fields of an `sn_run`."""
_RUN = struct.Struct("=12I4H5B3x")
KIND = 16
"""Index of the field with the kind."""
_DROPS = {
    lib.SN_DROP_FRAME: "rx_drop_frame",
    lib.SN_DROP_IP: "rx_drop_ip",
    lib.SN_DROP_IP_CHECKSUM: "rx_drop_ip_checksum",
    lib.SN_DROP_FRAGMENT: "rx_drop_ip_fragment",
    lib.SN_DROP_TCP: "rx_drop_tcp",
    lib.SN_DROP_TCP_CHECKSUM: "rx_drop_tcp_checksum",
    lib.SN_DROP_ADDRESS: "rx_drop_mac",
}
OTHER: int = lib.SN_KIND_OTHER
_SMALL = 2048
"""Payload bytes up to which slicing is cheaper than a numpy copy."""


class RxParser:
    """The parser of one NIC. Payloads under the ToS of `offloads` have payload headers."""

    def __init__(self, mac: bytes, offloads: OffloadTable, counters: NicCounters) -> None:
        self._mac = mac
        self._offloads = offloads
        self._counters = counters
        self._batch = 0
        self.reserve(1024)
        self.use(ffi.NULL, 0, ffi.NULL, ffi.NULL)
        self._restored = ffi.new("uint64_t *")
        self._raw = ffi.new("uint32_t *")

    def reserve(self, count: int) -> None:
        """Have space for batches of this length."""
        if count > self._batch:
            self._batch = count
            self.payloads: Any = ffi.new("sn_payload_ref[]", count)
            """One payload reference per frame."""
            self.runs: Any = ffi.new("sn_run[]", count)
            """The runs of the batch."""

    def use(self, data: Any, size: int, offsets: Any, lengths: Any) -> None:
        """Refer to a batch from now on, which `sn_parse` has parsed into `payloads` and `runs`."""
        self.data, self.size, self._offsets, self._lengths = data, size, offsets, lengths

    def parse(self, frames: Frames) -> int:
        """Parse a batch. Return the number of its runs."""
        count = len(frames)
        self.reserve(count)
        data, offsets, lengths = frames.arrays
        self.use(data, len(data), offsets, lengths)
        where = (data, len(data), offsets, lengths, count)
        found: int = lib.sn_parse(*where, self._mac, self._offloads.bitmap, self.payloads, self.runs)
        self._counters.rx_frames += count
        self._counters.rx_wire_bytes += frames.nbytes
        return found

    def run(self, index: int) -> Run:
        """Return the fields of a run."""
        return _RUN.unpack(ffi.buffer(self.runs + index, _RUN.size))

    def frame(self, index: int) -> bytes:
        """Return a frame of the batch."""
        return self.read(self._offsets[index], self._lengths[index])

    def drop(self, kind: int) -> None:
        """Count a dropped run of this kind."""
        name = _DROPS[kind]
        setattr(self._counters, name, getattr(self._counters, name) + 1)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the buffer."""
        found: bytes = ffi.buffer(self.data + offset, length)[:]
        return found

    def gather(self, first: int, count: int, length: int) -> memoryview:
        """Return the payloads of `count` frames unchanged, `length` bytes in all."""
        if count == 1 and length <= _SMALL:
            start = self.payloads[first].offset
            return memoryview(self.read(start, length))
        out = np.empty(length, np.uint8)
        lib.sn_gather(self.data, self.size, self.payloads + first, count, ffi.from_buffer("uint8_t[]", out), length)
        return out.data

    def decode_payload(
        self, first: int, count: int, length: int, original: int, codecs: int, flow: NicFlow
    ) -> memoryview | None:
        """Return the original bytes of `count` offloaded frames; None if one is malformed or of another codec."""
        out = np.empty(original, np.uint8)
        target = (ffi.from_buffer("uint8_t[]", out), original, self._restored, self._raw)
        if lib.sn_decode_payloads(self.data, self.size, self.payloads + first, count, codecs, *target) != count:
            return None
        flow.offload_original_bytes_received += original
        flow.offload_encoded_bytes_received += length
        counters = self._counters
        counters.rx_offload_frames += count
        counters.rx_offload_original_bytes += original
        counters.rx_offload_encoded_bytes += length
        counters.rx_offload_raw_frames += self._raw[0]
        return out.data
