"""Replays a frame through `packet_loop` (native/rtl) and writes every signal of it to a VCD.

The frame is decoded by the receiving packet path of Li et al. (MICRO 2018), Section VI-A, and what leaves that is
encoded again by the sending one. Each codec has a library of its own, made by the first replay.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from softnic.rtl import library
from softnic.rtl.verilator import RtlError

CODECS = {"inceptionn": 0, "bounded": 1}
"""Codecs with a packet path, and its parameter IS_BOUNDED."""
CYCLE_NS = 10
"""The paper's clock, 100 MHz."""
BEATS = 2048
"""Of the memory of a packet path, of 32 bytes each."""
MOST_BYTES = BEATS * 16
"""The longest frame that a packet path takes or makes: half of its memory."""
_DROPPED, _STUCK, _NOT_WRITTEN = 1, 2, 3


class _Port(ctypes.Structure):
    """`struct sn_wave_port` (waves.cpp)."""

    _fields_ = [
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
        ("first", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
    ]


class _Wave(ctypes.Structure):
    """`struct sn_wave` (waves.cpp)."""

    _fields_ = [
        ("path", ctypes.c_char_p),
        ("tag", ctypes.c_int),
        ("k", ctypes.c_int),
        ("cycles", ctypes.c_uint64),
        ("received", _Port),
        ("plain", _Port),
        ("sent", _Port),
    ]


@dataclass(frozen=True)
class Passage:
    """A frame at one port. Cycles are those of its first and its last beat, from the start of the waveform."""

    frame: bytes
    first: int
    last: int


@dataclass(frozen=True)
class Replay:
    """A frame as it was captured, as the receiving path gives it to the host, and as the sending one makes it again."""

    cycles: int
    received: Passage
    plain: Passage
    sent: Passage


def design(codec: str) -> library.Design:
    """Return the design of `packet_loop` for a codec."""
    options = ("--trace", "--timescale", "1ns/1ns", f"-GIS_BOUNDED={CODECS[codec]}", f"-GBEATS={BEATS}")
    return library.Design(f"waves-{codec}", "waves.cpp", ("packet_loop",), options, ("verilated_vcd_c.cpp",))


def replay(frame: bytes, codec: str, parameter: int, tos: int, path: Path) -> Replay:
    """Replay an Ethernet frame and write the waveform.

    Parameters
    ----------
    frame
        TCP over IPv4, without options of IPv4 and VLAN tags.
    codec, parameter
        The codec of its payload, one of `CODECS`.
    tos
        The ToS that is the tag.
    path
        The VCD; one that exists is replaced.

    Raises
    ------
    RtlError
        If there is no Verilator, or the engines do not take the frame.
    """
    function = ctypes.CDLL(str(library.path(design(codec)))).rtl_wave
    function.argtypes, function.restype = [ctypes.POINTER(_Wave)], ctypes.c_int
    buffers = [ctypes.create_string_buffer(frame, len(frame)), *(ctypes.create_string_buffer(1 << 16) for _ in "12")]
    ports = [_Port(ctypes.cast(each, ctypes.c_char_p), len(each), len(each)) for each in buffers]
    wave = _Wave(os.fsencode(path), tos >> 2, parameter, 0, *ports)
    result = function(ctypes.byref(wave))
    if result == _NOT_WRITTEN:
        raise RtlError(f"{path} cannot be written")
    if result == _DROPPED:
        raise RtlError("the packet path drops the frame: its payload is not what its headers say")
    if result == _STUCK:
        raise RtlError(f"the packet path has not ended the frame after {wave.cycles:,} cycles")
    passages = [
        Passage(buffer.raw[: port.size], port.first, port.last)
        for buffer, port in zip(buffers, (wave.received, wave.plain, wave.sent), strict=True)
    ]
    return Replay(wave.cycles, *passages)
