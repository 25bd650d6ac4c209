"""Reads pcapng files of any origin into columns, one row per packet.

The file is mapped, not read. A short loop walks from block to block; trailing lengths, packet headers and options are
checked and parsed for all packets of a section at once in numpy, because a capture of a training job has millions of
them. Files may have any number of sections of either byte order and any timestamp resolution. Unknown blocks and
options are skipped, as the format requires, and so are simple packet blocks, which have neither time nor interface.
Violations of the format raise CaptureError.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.capture import pcapng

Column = npt.NDArray[Any]

_CLASSIC_MAGICS = {0xA1B2C3D4, 0xD4C3B2A1, 0xA1B23C4D, 0x4D3CB2A1}
_MAX_OPTIONS = 64
"""Limit of options in one block. Real ones have a handful; a hostile file must not cost minutes."""


class CaptureError(ValueError):
    """The file is not a capture, or a broken one. `offset` is the position of the error in bytes."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"{problem} at byte offset {offset}")
        self.offset = offset


@dataclass(slots=True)
class Interface:
    """A vantage point."""

    name: str
    description: str
    link_type: int
    snaplen: int
    nanoseconds_a_tick: float
    offset_s: int
    received: int | None = None
    dropped: int | None = None
    """According to the last statistics block, if any."""


@dataclass(slots=True)
class CaptureFile:
    """The packets of a file as columns, in file order; row r is the packet that Wireshark numbers r + 1."""

    data: npt.NDArray[np.uint8]
    interfaces: list[Interface] = field(default_factory=list)
    application: str = ""
    interface: Column = field(default_factory=lambda: np.empty(0, np.int64))
    time_ns: Column = field(default_factory=lambda: np.empty(0, np.int64))
    """Nanoseconds since 1970."""
    offset: Column = field(default_factory=lambda: np.empty(0, np.int64))
    """Offset of the packet's first byte in `data`."""
    captured: Column = field(default_factory=lambda: np.empty(0, np.int64))
    length: Column = field(default_factory=lambda: np.empty(0, np.int64))
    """Bytes in the file, and bytes of the original packet."""
    direction: Column = field(default_factory=lambda: np.empty(0, np.uint8))
    packet_id: Column = field(default_factory=lambda: np.empty(0, np.uint64))
    """epb_packetid; 0: none."""

    def __len__(self) -> int:
        return len(self.offset)

    def packet(self, row: int) -> bytes:
        """Return the captured bytes of one packet."""
        start = int(self.offset[row])
        return self.data[start : start + int(self.captured[row])].tobytes()


def read(path: str | os.PathLike[str]) -> CaptureFile:
    """Read a pcapng file.

    Raises
    ------
    OSError
        If the file cannot be read.
    CaptureError
        If it is malformed, with the offset of the error.
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise CaptureError(0, "the file is empty")
        return parse(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


def parse(buffer: bytes | mmap.mmap) -> CaptureFile:
    """Parse a pcapng file in memory, as `read` does."""
    size = len(buffer)
    capture = CaptureFile(np.frombuffer(buffer, dtype=np.uint8))
    parts: list[tuple[Column, ...]] = []
    at = 0
    while at < size:
        order = _byte_order(buffer, at)
        starts, end, problem = _walk(buffer, at, struct.Struct(order + "II"))
        section = _Section(capture, order, np.array(starts, dtype=np.int64))
        if problem:
            raise problem
        parts.append(section.packets())
        at = end
    if parts:
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        capture.interface, capture.time_ns, capture.offset, capture.captured = columns[:4]
        capture.length, capture.direction, capture.packet_id = columns[4:]
    return capture


def _byte_order(buffer: bytes | mmap.mmap, at: int) -> str:
    """Return the struct prefix for the byte order of the section that starts here."""
    if len(buffer) - at < 28:
        raise CaptureError(at, "not a pcapng file: no section header")
    kind, _, magic = struct.unpack_from("<III", buffer, at)
    if at == 0 and kind in _CLASSIC_MAGICS:
        raise CaptureError(0, "a classic pcap file, not pcapng (editcap -F pcapng IN OUT converts it): its magic")
    if kind != pcapng.SECTION_HEADER:
        raise CaptureError(at, "not a pcapng file: no section header")
    if magic not in (pcapng.BYTE_ORDER_MAGIC, 0x4D3C2B1A):
        raise CaptureError(at + 8, f"a section header with the byte-order magic 0x{magic:08x}")
    return "<" if magic == pcapng.BYTE_ORDER_MAGIC else ">"


def _walk(buffer: bytes | mmap.mmap, start: int, head: struct.Struct) -> tuple[list[int], int, CaptureError | None]:
    """Return the offsets of a section's blocks, its end, and the error that ended the walk, if any."""
    unpack_from, size, section = head.unpack_from, len(buffer), pcapng.SECTION_HEADER
    starts: list[int] = []
    found = starts.append
    at = start
    while at <= size - 12:
        kind, length = unpack_from(buffer, at)
        if kind == section and at != start:
            return starts, at, None
        if length < 12 or length & 3:
            return starts, at, CaptureError(at, f"a block with a length of {length} bytes")
        if at + length > size:
            left = f"{size - at} left (cut short, or still being written)"
            return starts, at, CaptureError(at, f"a block of {length} bytes where the file has {left}")
        found(at)
        at += length
    if at < size:
        return starts, at, CaptureError(at, f"{size - at} bytes too many after the last block")
    return starts, at, None


class _Section:
    """The blocks of one section, whose lengths have been checked; adds its interfaces to the capture."""

    def __init__(self, capture: CaptureFile, order: str, starts: Column) -> None:
        self.order = order
        self.capture = capture
        self.bytes: memoryview = capture.data.data
        self.words = capture.data[: len(capture.data) & ~3].view(order + "u4")
        self.halves = capture.data[: len(capture.data) & ~1].view(order + "u2")
        self.first_interface = len(capture.interfaces)
        kinds = self.word(starts, 0)
        lengths = self.word(starts, 4)
        _refuse(starts, self.word(starts + lengths, -4) != lengths, "a block whose two lengths differ")
        if len(starts):
            self._header(int(starts[0]), int(lengths[0]))
        for kind, handle in (
            (pcapng.INTERFACE_DESCRIPTION, self._interface),
            (pcapng.INTERFACE_STATISTICS, self._statistics),
        ):
            for row in np.flatnonzero(kinds == kind).tolist():
                handle(int(starts[row]), int(lengths[row]))
        chosen = kinds == pcapng.ENHANCED_PACKET
        self.starts, self.ends = starts[chosen], (starts + lengths)[chosen] - 4

    def word(self, at: Column, distance: int) -> Column:
        word: Column = self.words[(at + distance) >> 2].astype(np.int64)
        return word

    def options(self, at: int, end: int) -> dict[int, bytes]:
        """Return the options of one block; of repeated ones the last."""
        found: dict[int, bytes] = {}
        for _ in range(_MAX_OPTIONS):
            if end - at < 4:
                return found
            code, length = struct.unpack_from(self.order + "HH", self.bytes, at)
            if code == pcapng.END_OF_OPTIONS:
                return found
            if length > end - at - 4:
                raise CaptureError(at, f"an option of {length} bytes, longer than its block,")
            found[code] = self.bytes[at + 4 : at + 4 + length].tobytes()
            at += 4 + length + (-length & 3)
        raise CaptureError(at, f"more than {_MAX_OPTIONS} options in a block")

    def _header(self, at: int, length: int) -> None:
        if length < 28:
            raise CaptureError(at, f"a section header of {length} bytes")
        major, minor = struct.unpack_from(self.order + "HH", self.bytes, at + 12)
        if major != 1:
            raise CaptureError(at + 12, f"a section of pcapng version {major}.{minor}")
        application = _text(self.options(at + 24, at + length - 4).get(pcapng.SHB_USERAPPL, b""))
        self.capture.application = self.capture.application or application

    def _interface(self, at: int, length: int) -> None:
        if length < 20:
            raise CaptureError(at, f"an interface description of {length} bytes")
        link_type, _, snaplen = struct.unpack_from(self.order + "HHI", self.bytes, at + 8)
        options = self.options(at + 16, at + length - 4)
        resolution = options.get(pcapng.IF_TSRESOL, b"\x06")
        offset = options.get(pcapng.IF_TSOFFSET, bytes(8))
        if len(resolution) != 1 or len(offset) != 8:
            raise CaptureError(at, "an interface description with a malformed time option")
        base, exponent = (2.0, resolution[0] & 0x7F) if resolution[0] & 0x80 else (10.0, resolution[0])
        self.capture.interfaces.append(
            Interface(
                name=_text(options.get(pcapng.IF_NAME, b"")) or f"interface {len(self.capture.interfaces)}",
                description=_text(options.get(pcapng.IF_DESCRIPTION, b"")),
                link_type=link_type,
                snaplen=snaplen,
                nanoseconds_a_tick=1e9 / base**exponent,
                offset_s=struct.unpack(self.order + "q", offset)[0],
            )
        )

    def _statistics(self, at: int, length: int) -> None:
        if length < 24:
            raise CaptureError(at, f"an interface statistics block of {length} bytes")
        number = self.first_interface + struct.unpack_from(self.order + "I", self.bytes, at + 8)[0]
        if number >= len(self.capture.interfaces):
            raise CaptureError(at, "statistics of an interface that is not described")
        options = self.options(at + 20, at + length - 4)
        counts = [options.get(code, b"") for code in (pcapng.ISB_IFRECV, pcapng.ISB_IFDROP)]
        received, dropped = (struct.unpack(self.order + "Q", count)[0] if len(count) == 8 else None for count in counts)
        interface = self.capture.interfaces[number]
        interface.received, interface.dropped = received, dropped

    def packets(self) -> tuple[Column, ...]:
        """Return the columns of its enhanced packet blocks, in the order of CaptureFile's fields."""
        starts, ends = self.starts, self.ends
        _refuse(starts, ends - starts < 28, "an enhanced packet block without room for its fields")
        interface = self.word(starts, 8) + self.first_interface
        unknown = interface >= len(self.capture.interfaces)
        _refuse(starts, unknown, "a packet of an interface that is not described")
        captured = self.word(starts, 20)
        _refuse(starts, captured > ends - starts - 28, "a packet longer than its block")
        direction, packet_id = self._packet_options(starts + 28 + ((captured + 3) & ~3), ends)
        length = np.maximum(self.word(starts, 24), captured)
        return interface, self._times(starts, interface), starts + 28, captured, length, direction, packet_id

    def _packet_options(self, at: Column, ends: Column) -> tuple[Column, Column]:
        """Return direction and packet id of every packet. Loops over positions in the option lists, not over
        packets."""
        direction = np.zeros(len(at), np.uint8)
        packet_id = np.zeros(len(at), np.uint64)
        rows = np.flatnonzero(ends - at >= 4)
        at, ends = at[rows], ends[rows]
        for _ in range(_MAX_OPTIONS):
            code = self.halves[at >> 1]
            open_ = code != pcapng.END_OF_OPTIONS
            rows, at, ends, code = rows[open_], at[open_], ends[open_], code[open_]
            if not len(rows):
                return direction, packet_id
            length = self.halves[(at >> 1) + 1].astype(np.int64)
            _refuse(at, length > ends - at - 4, "an option longer than its block")
            flags = np.flatnonzero((code == pcapng.EPB_FLAGS) & (length == 4))
            direction[rows[flags]] = self.word(at[flags], 4) & 3
            numbered = np.flatnonzero((code == pcapng.EPB_PACKETID) & (length == 8))
            first, second = (self.word(at[numbered], place).astype(np.uint64) for place in (4, 8))
            low, high = (first, second) if self.order == "<" else (second, first)
            packet_id[rows[numbered]] = high << np.uint64(32) | low
            at = at + 4 + ((length + 3) & ~3)
            more = ends - at >= 4
            rows, at, ends = rows[more], at[more], ends[more]
        if len(rows):
            raise CaptureError(int(at[0]), f"more than {_MAX_OPTIONS} options in a block")
        return direction, packet_id

    def _times(self, starts: Column, interface: Column) -> Column:
        """Return nanoseconds since 1970. Times beyond the year 2262 wrap; they are only displayed."""
        ticks = (self.word(starts, 12) << 32 | self.word(starts, 16)).astype(np.int64)
        times = np.empty(len(ticks), np.int64)
        for number in np.unique(interface).tolist():
            of_interface = interface == number
            source = self.capture.interfaces[number]
            scale = source.nanoseconds_a_tick
            if scale.is_integer():
                own = ticks[of_interface] * np.int64(scale)
            else:
                own = np.clip(ticks[of_interface] * scale, -9.2e18, 9.2e18).astype(np.int64)
            offset_ns = (source.offset_s * 10**9 + 2**63) % 2**64 - 2**63
            times[of_interface] = own + np.int64(offset_ns)
        return times


def _refuse(at: Column, wrong: Column, problem: str) -> None:
    """Raise CaptureError for the first wrong row."""
    if wrong.any():
        raise CaptureError(int(at[int(np.argmax(wrong))]), problem)


def _text(value: bytes) -> str:
    """Return the text of an option without control characters, which a terminal would interpret."""
    return "".join(character if character.isprintable() else "?" for character in value.decode("utf-8", "replace"))
