"""Reads capture files of any origin into columns, one row per packet: pcapng here, pcap in classic_pcap.py.

The file is mapped, not read. A short loop walks from block to block; trailing lengths, packet headers and options are
checked and parsed for all packets at once in numpy, because a capture of a training job has millions of them. Files
may have any number of sections of either byte order and any timestamp resolution; an interface of a later section that
is described as one of an earlier section is the same vantage point. Unknown blocks and options are skipped, as the
format requires. Violations of the format raise CaptureError.

Whatever Wireshark numbers has a row: packets of enhanced, simple and obsolete packet blocks, and records that are no
packets (journal entries, custom blocks, system calls).
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from softnic.capture import pcapng
from softnic.capture.capture_file import NO_LINK, CaptureError, CaptureFile, Column, Interface
from softnic.capture.classic_pcap import is_classic, parse_classic
from softnic.terminal import printable

_RECORDS = (0x00000009, 0x00000BAD, 0x40000BAD, 0x00000204, 0x00000216, 0x00000221)
"""Blocks that are numbered but no packets: journal export, custom (copied or not), and sysdig's events."""
_PACKETS = (pcapng.ENHANCED_PACKET, pcapng.SIMPLE_PACKET, pcapng.OBSOLETE_PACKET)
_OPTIONS_AT_ONCE = 16
"""Options of packets that are parsed for all packets at once; the few packets with more have them parsed singly."""


def read(path: str | os.PathLike[str]) -> CaptureFile:
    """Read a pcapng or pcap file.

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
    """Parse a pcapng or pcap file in memory, as `read` does."""
    return parse_classic(buffer) if is_classic(buffer) else _File(buffer).capture


@dataclass(slots=True)
class _Section:
    """A section: where its blocks begin, and its part of the table of described interfaces."""

    first_block: int
    big_endian: bool
    first_interface: int = 0
    interfaces: int = 0
    alike: Counter[tuple[str | int, str, int]] = field(default_factory=Counter)
    """Interfaces with one name, description and link type."""


@dataclass(slots=True)
class _Described:
    """An interface description block: the vantage point, and what its section says of it."""

    interface: int
    nanoseconds_a_tick: float
    offset_s: int
    snaplen: int
    received: int | None = None
    dropped: int | None = None


def _walk(buffer: bytes | mmap.mmap) -> tuple[list[int], list[_Section], CaptureError | None]:
    """Return the offsets of all blocks, the sections, and the error that ended the walk, if any."""
    size, section = len(buffer), pcapng.SECTION_HEADER
    starts: list[int] = []
    found = starts.append
    sections: list[_Section] = []
    unpack_from = struct.Struct("<II").unpack_from
    at = 0
    while at <= size - 12 or not sections:
        kind, length = unpack_from(buffer, at) if sections else (section, 0)
        if kind == section:
            big_endian = _is_big_endian(buffer, at)
            unpack_from = struct.Struct(">II" if big_endian else "<II").unpack_from
            sections.append(_Section(len(starts), big_endian))
            kind, length = unpack_from(buffer, at)
        if length < 12 or length & 3:
            return starts, sections, CaptureError(at, f"a block with a length of {length} bytes")
        if at + length > size:
            left = f"{size - at} left (cut short, or still being written)"
            return starts, sections, CaptureError(at, f"a block of {length} bytes where the file has {left}")
        found(at)
        at += length
    left_over = CaptureError(at, f"{size - at} bytes too many after the last block") if at < size else None
    return starts, sections, left_over


def _is_big_endian(buffer: bytes | mmap.mmap, at: int) -> bool:
    """Return the byte order of the section that starts here."""
    if len(buffer) - at < 28:
        raise CaptureError(at, "not a pcapng or pcap file: no section header")
    kind, _, magic = struct.unpack_from("<III", buffer, at)
    if kind != pcapng.SECTION_HEADER:
        raise CaptureError(at, "not a pcapng or pcap file: no section header")
    if magic not in (pcapng.BYTE_ORDER_MAGIC, 0x4D3C2B1A):
        raise CaptureError(at + 8, f"a section header with the byte-order magic 0x{magic:08x}")
    return bool(magic != pcapng.BYTE_ORDER_MAGIC)


class _File:
    """Makes `capture` of the blocks of a pcapng file."""

    def __init__(self, buffer: bytes | mmap.mmap) -> None:
        self.capture = CaptureFile(np.frombuffer(buffer, dtype=np.uint8))
        self._bytes: memoryview = self.capture.data.data
        self._words = self.capture.data[: len(buffer) & ~3].view("<u4")
        self._described: list[_Described] = []
        self._vantage_points: dict[tuple[str | int, str, int, int], int] = {}
        blocks, self._sections, problem = _walk(buffer)
        starts = np.array(blocks, dtype=np.int64)
        counts = np.diff([section.first_block for section in self._sections], append=len(starts))
        self._section = np.repeat(np.arange(len(self._sections)), counts)
        big_endian = np.array([section.big_endian for section in self._sections])[self._section]
        kinds, lengths = self._word(starts, 0, big_endian), self._word(starts, 4, big_endian)
        different = self._word(starts + lengths, -4, big_endian) != lengths
        _refuse(starts, different, "a block whose two lengths differ")
        described = (pcapng.SECTION_HEADER, pcapng.INTERFACE_DESCRIPTION, pcapng.INTERFACE_STATISTICS)
        chosen = np.flatnonzero(np.isin(kinds, described))
        self._describe(chosen, starts, lengths, kinds)
        if problem:
            raise problem
        rows = np.flatnonzero(np.isin(kinds, (*_PACKETS, *_RECORDS)))
        self._fill(starts[rows], lengths[rows], kinds[rows], big_endian[rows], self._section[rows])

    def _word(self, at: Column, distance: int, big_endian: Column) -> Column:
        word = self._words[(at + distance) >> 2]
        if big_endian.any():
            word = np.where(big_endian, word.byteswap(), word)
        found: Column = word.astype(np.int64)
        return found

    def _half(self, at: Column, big_endian: Column) -> tuple[Column, Column]:
        """Return the two 16-bit numbers of a word, as they stand in the file."""
        word = self._word(at, 0, big_endian)
        high, low = word >> 16, word & 0xFFFF
        return np.where(big_endian, high, low), np.where(big_endian, low, high)

    def _options(self, at: int, end: int, order: str) -> Iterator[tuple[int, int, int]]:
        """Yield code, offset of the value and its length of the options of one block."""
        while end - at >= 4:
            code, length = struct.unpack_from(order + "HH", self._bytes, at)
            if code == pcapng.END_OF_OPTIONS:
                return
            if length > end - at - 4:
                raise CaptureError(at, f"an option of {length} bytes, longer than its block,")
            yield code, at + 4, length
            at += 4 + length + (-length & 3)

    def _option_values(self, at: int, end: int, order: str) -> dict[int, bytes]:
        """Return the options of one block; of repeated ones the last."""
        return {
            code: self._bytes[start : start + length].tobytes() for code, start, length in self._options(at, end, order)
        }

    # Sections and interfaces

    def _describe(self, rows: Column, starts: Column, lengths: Column, kinds: Column) -> None:
        """Read the blocks that describe sections and interfaces, in file order."""
        handlers = {
            pcapng.SECTION_HEADER: self._header,
            pcapng.INTERFACE_DESCRIPTION: self._interface,
            pcapng.INTERFACE_STATISTICS: self._statistics,
        }
        columns = (kinds[rows], starts[rows], lengths[rows], self._section[rows])
        for kind, at, length, number in zip(*(column.tolist() for column in columns), strict=True):
            section = self._sections[number]
            handlers[kind](at, length, section, ">" if section.big_endian else "<")
        for one in self._described:
            interface = self.capture.interfaces[one.interface]
            if one.received is not None:
                interface.received = (interface.received or 0) + one.received
            if one.dropped is not None:
                interface.dropped = (interface.dropped or 0) + one.dropped

    def _header(self, at: int, length: int, section: _Section, order: str) -> None:
        if length < 28:
            raise CaptureError(at, f"a section header of {length} bytes")
        major, minor = struct.unpack_from(order + "HH", self._bytes, at + 12)
        if major != 1:
            raise CaptureError(at + 12, f"a section of pcapng version {major}.{minor}")
        section.first_interface = len(self._described)
        options = self._option_values(at + 24, at + length - 4, order)
        self.capture.application = self.capture.application or _text(options.get(pcapng.SHB_USERAPPL, b""))

    def _interface(self, at: int, length: int, section: _Section, order: str) -> None:
        if length < 20:
            raise CaptureError(at, f"an interface description of {length} bytes")
        link_type, _, snaplen = struct.unpack_from(order + "HHI", self._bytes, at + 8)
        options = self._option_values(at + 16, at + length - 4, order)
        resolution = options.get(pcapng.IF_TSRESOL, b"\x06")
        offset = options.get(pcapng.IF_TSOFFSET, bytes(8))
        if len(resolution) != 1 or len(offset) != 8:
            raise CaptureError(at, "an interface description with a malformed time option")
        base, exponent = (2.0, resolution[0] & 0x7F) if resolution[0] & 0x80 else (10.0, resolution[0])
        name = _text(options.get(pcapng.IF_NAME, b""))
        description = _text(options.get(pcapng.IF_DESCRIPTION, b""))
        alike = (name or section.interfaces, description, link_type)
        key = (*alike, section.alike[alike])
        section.alike[alike] += 1
        number = self._vantage_points.setdefault(key, len(self.capture.interfaces))
        if number == len(self.capture.interfaces):
            self.capture.interfaces.append(Interface(name or f"interface {number}", description, link_type, snaplen))
        self._described.append(_Described(number, 1e9 / base**exponent, struct.unpack(order + "q", offset)[0], snaplen))
        section.interfaces += 1

    def _statistics(self, at: int, length: int, section: _Section, order: str) -> None:
        if length < 24:
            raise CaptureError(at, f"an interface statistics block of {length} bytes")
        (number,) = struct.unpack_from(order + "I", self._bytes, at + 8)
        if number >= section.interfaces:
            raise CaptureError(at, "statistics of an interface that is not described")
        options = self._option_values(at + 20, at + length - 4, order)
        counts = [options.get(code, b"") for code in (pcapng.ISB_IFRECV, pcapng.ISB_IFDROP)]
        received, dropped = (struct.unpack(order + "Q", count)[0] if len(count) == 8 else None for count in counts)
        described = self._described[section.first_interface + number]
        described.received, described.dropped = received, dropped

    # Packets

    def _fill(self, starts: Column, lengths: Column, kinds: Column, big_endian: Column, section: Column) -> None:
        """Fill the columns of the capture from the blocks that have a row."""
        capture, ends = self.capture, starts + lengths - 4
        simple, record = kinds == pcapng.SIMPLE_PACKET, np.isin(kinds, _RECORDS)
        full = ~(simple | record)
        _refuse(starts, full & (ends - starts < 28), "a packet block without room for its fields")
        _refuse(starts, simple & (ends - starts < 12), "a packet block without room for its fields")
        described = self._interfaces_of(starts, kinds, big_endian, section, simple | full)
        capture.offset = starts + np.select([full, simple], [28, 12], 8)
        room = ends - capture.offset
        captured, length = room.copy(), room.copy()
        for where, most, original in ((full, 20, 24), (simple, 8, 8)):
            captured[where] = self._word(starts[where], most, big_endian[where])
            length[where] = self._word(starts[where], original, big_endian[where])
        snaplens = np.array([one.snaplen or 1 << 32 for one in self._described], np.int64)
        captured[simple] = np.minimum(captured[simple], snaplens[described[simple]])
        _refuse(starts, captured > room, "a packet longer than its block")
        capture.captured, capture.length = captured, np.maximum(length, captured)
        vantage_points = np.array([one.interface for one in self._described] or [0], np.int64)
        capture.interface = vantage_points[described]
        if record.any():
            capture.interface[record] = len(capture.interfaces)
            capture.interfaces.append(Interface("no interface", "", NO_LINK, 0))
        capture.time_ns = np.zeros(len(starts), np.int64)
        capture.time_ns[full] = self._times(starts[full], described[full], big_endian[full])
        _fill_gaps(capture.time_ns, full)
        self._packet_options(np.flatnonzero(full), ends, big_endian)

    def _interfaces_of(
        self, starts: Column, kinds: Column, big_endian: Column, section: Column, packet: Column
    ) -> Column:
        """Return the places of the packets' interfaces in the table of described ones; of a simple packet the first of
        its section. Records have 0."""
        number = np.zeros(len(starts), np.int64)
        enhanced, obsolete = kinds == pcapng.ENHANCED_PACKET, kinds == pcapng.OBSOLETE_PACKET
        number[enhanced] = self._word(starts[enhanced], 8, big_endian[enhanced])
        number[obsolete] = self._half(starts[obsolete] + 8, big_endian[obsolete])[0]
        first = np.array([one.first_interface for one in self._sections], np.int64)[section]
        described = np.array([one.interfaces for one in self._sections], np.int64)[section]
        _refuse(starts, packet & (number >= described), "a packet of an interface that is not described")
        return np.where(packet, first + number, 0)

    def _packet_options(self, rows: Column, ends: Column, big_endian: Column) -> None:
        """Set direction and packet id of the packets. Loops over positions in the option lists, not over packets."""
        capture = self.capture
        capture.direction = np.zeros(len(capture), np.uint8)
        capture.packet_id = np.zeros(len(capture), np.uint64)
        at = capture.offset[rows] + ((capture.captured[rows] + 3) & ~3)
        for _ in range(_OPTIONS_AT_ONCE):
            more = ends[rows] - at >= 4
            rows, at = rows[more], at[more]
            code, length = self._half(at, big_endian[rows])
            more = code != pcapng.END_OF_OPTIONS
            rows, at, code, length = rows[more], at[more], code[more], length[more]
            if not len(rows):
                return
            _refuse(at, length > ends[rows] - at - 4, "an option longer than its block")
            flags = (code == pcapng.EPB_FLAGS) & (length == 4)
            capture.direction[rows[flags]] = self._word(at[flags], 4, big_endian[rows[flags]]) & 3
            numbered = (code == pcapng.EPB_PACKETID) & (length == 8)
            order = big_endian[rows[numbered]]
            first, second = (self._word(at[numbered], place, order).astype(np.uint64) for place in (4, 8))
            low, high = np.where(order, second, first), np.where(order, first, second)
            capture.packet_id[rows[numbered]] = high << np.uint64(32) | low
            at = at + 4 + ((length + 3) & ~3)
        for row, start in zip(rows.tolist(), at.tolist(), strict=True):
            self._more_options(row, start, int(ends[row]), ">" if big_endian[row] else "<")

    def _more_options(self, row: int, at: int, end: int, order: str) -> None:
        """Set direction and packet id of one packet from a place in its options on."""
        for code, start, length in self._options(at, end, order):
            if (code, length) == (pcapng.EPB_FLAGS, 4):
                self.capture.direction[row] = struct.unpack_from(order + "I", self._bytes, start)[0] & 3
            elif (code, length) == (pcapng.EPB_PACKETID, 8):
                self.capture.packet_id[row] = struct.unpack_from(order + "Q", self._bytes, start)[0]

    def _times(self, starts: Column, described: Column, big_endian: Column) -> Column:
        """Return nanoseconds since 1970. Times beyond the year 2262 wrap; they are only displayed."""
        high, low = (self._word(starts, place, big_endian) for place in (12, 16))
        ticks = high << 32 | low
        scale = np.array([one.nanoseconds_a_tick for one in self._described] or [1.0])[described]
        whole = scale == np.floor(scale)
        times: Column = np.clip(ticks * scale, -9.2e18, 9.2e18).astype(np.int64)
        times[whole] = ticks[whole] * scale[whole].astype(np.int64)
        offsets = [(one.offset_s * 10**9 + 2**63) % 2**64 - 2**63 for one in self._described] or [0]
        times += np.array(offsets, np.int64)[described]
        return times


def _fill_gaps(times: Column, timed: Column) -> None:
    """Give packets without a time that of the timed packet before them, or of the first one."""
    known = np.flatnonzero(timed)
    if len(known):
        before = np.maximum(np.cumsum(timed) - 1, 0)
        times[:] = times[known[before]]


def _refuse(at: Column, wrong: Column, problem: str) -> None:
    """Raise CaptureError for the first wrong row."""
    if wrong.any():
        raise CaptureError(int(at[int(np.argmax(wrong))]), problem)


def _text(value: bytes) -> str:
    return printable(value.decode("utf-8", "replace"))
