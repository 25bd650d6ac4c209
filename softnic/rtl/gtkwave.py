"""Save files for GTKWave, beside a replay's waveform: the ports of both engines and a lane, ready to be looked at.

Of the buses of 256 bits the lowest 32 are shown: the first word of a beat, or its first four bytes.
"""

from __future__ import annotations

import math
from pathlib import Path

from softnic.rtl.waves import CODECS, CYCLE_NS

SUFFIX = ".gtkw"
BUS_BITS = 256
SHOWN_BITS = 32
TOP = "packet_loop"
_BIT, _HEXADECIMAL, _COMMENT = "@28", "@22", "@200"
"""GTKWave's formats of what follows."""
_WINDOW = f"[size] 1400 620\n[signalwidth] 250\n[sst_width] 160\n[treeopen] {TOP}."
_ZOOM_NS, _ZOOM = 100, 4.5
"""A window shows about as many ns with this zoom, and twice as many with one more."""


def save(vcd: Path, codec: str, cycles: int) -> Path | None:
    """Write the save file of a waveform, with the same name. Returns it, or None if there is one, which stays.

    Parameters
    ----------
    vcd
        The waveform, of `waves.replay`.
    codec
        Of the packet.
    cycles
        Of the waveform.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path = vcd.with_suffix(SUFFIX)
    zoom = _ZOOM + math.log2(max(1, cycles * CYCLE_NS / _ZOOM_NS))
    lines = [f'[dumpfile] "{vcd.resolve()}"', _WINDOW, f"*-{zoom:.2f} 0", _BIT, f"{TOP}.clk"]
    for side, engine in (("receive", "decoder"), ("send", "encoder")):
        scope = f"{TOP}.{side}.{engine}.codec_{1 + CODECS[codec]}.engine"
        lines += [_COMMENT, f"-{engine}", *_port(f"{scope}.s_axis")]
        if engine == "encoder":
            lines += [_HEXADECIMAL, f"{scope}.lanes[0].block.tag[1:0]", f"{scope}.lanes[0].block.vector[31:0]"]
        lines += _port(f"{scope}.m_axis")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except FileExistsError:
        return None
    return path


def _port(name: str) -> list[str]:
    bus = f"{name}_tdata[{BUS_BITS - 1}:0]"
    bits = " ".join(f"({place}){bus}" for place in range(BUS_BITS - SHOWN_BITS, BUS_BITS))
    label = f"{name.rpartition('.')[2]}_tdata[{SHOWN_BITS - 1}:0]"
    return [_BIT, f"{name}_tvalid", f"{name}_tready", _HEXADECIMAL, f"#{{{label}}} {bits}"]
