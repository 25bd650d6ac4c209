"""Draws the picture of docs/tutorials/waves.md: a packet of floats in the decoder's and the encoder's ports.

python -m benchmarks.waves float.vcd --out docs/waves.svg

The VCD is that of the tutorial's commands. A bus is a row of boxes with the lowest 32 bits of its values.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softnic.extras import not_installed
from softnic.rtl import vcd
from softnic.rtl.waves import CYCLE_NS

CLOCK = "packet_loop.clk"
ENGINES = {
    "bounded_decoder": "packet_loop.receive.decoder.codec_2.engine",
    "bounded_encoder": "packet_loop.send.encoder.codec_2.engine",
}
SIGNALS = {
    "bounded_decoder": ("s_axis_tvalid", "s_axis_tdata", "m_axis_tvalid", "m_axis_tdata"),
    "bounded_encoder": (
        *("s_axis_tvalid", "s_axis_tdata", "lanes[0].block.tag", "lanes[0].block.vector"),
        *("m_axis_tvalid", "m_axis_tdata"),
    ),
}
WIDTH_IN, ROW_IN = 11.0, 0.34
MARGIN_NS = 15
HIGH, BEVEL_NS = 0.7, 0.8
"""Height of a signal in its row, and the slope of an edge."""
LOW_BITS = 0xFFFFFFFF
BUS, LEVEL = "#1f77b4", "#2ca02c"


@dataclass(frozen=True)
class Span:
    """A value for a time."""

    begin: float
    end: float
    value: int


def spans(signal: vcd.Signal, begin: int, end: int) -> Iterator[Span]:
    """Yield the values of a signal between two times; equal ones in one piece."""
    times = [begin, *(time for time in signal.times if begin < time < end)]
    start, value = begin, signal.at(begin)
    for time in times[1:]:
        if signal.at(time) != value:
            yield Span(start, time, value)
            start, value = time, signal.at(time)
    yield Span(start, end, value)


def draw(wave: vcd.Waveform, path: Path) -> None:
    """Draw both engines into an SVG. Raises ImportError without matplotlib, KeyError for another VCD, OSError."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = {name: (CLOCK, *(f"{ENGINES[name]}.{signal}" for signal in SIGNALS[name])) for name in ENGINES}
    counts = [len(names) for names in rows.values()]
    figure = Figure(figsize=(WIDTH_IN, ROW_IN * (sum(counts) + 5)), layout="constrained")
    panels = figure.subplots(len(rows), 1, height_ratios=counts)
    for axes, (engine, names) in zip(panels, rows.items(), strict=True):
        _panel(axes, wave, engine, names)
    panels[-1].set_xlabel("ns, at 100 MHz", fontsize="small")
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "softnic"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _panel(axes: Any, wave: vcd.Waveform, engine: str, names: tuple[str, ...]) -> None:
    beats = [time for side in "sm" for time, *_ in wave.beats(f"{ENGINES[engine]}.{side}_axis", CLOCK)]
    begin, end = min(beats) - MARGIN_NS, max(beats) + MARGIN_NS
    for row, name in enumerate(names):
        signal, floor = wave.signals[name], len(names) - 1 - row
        (_level if signal.width == 1 else _bus)(axes, list(spans(signal, begin, end)), floor, signal.width)
    axes.set_title(engine, fontsize="medium", loc="left")
    shown = [name.removeprefix(f"{ENGINES[engine]}.").removeprefix("packet_loop.") for name in names]
    axes.set_yticks([len(names) - 1 - row + HIGH / 2 for row in range(len(names))], shown, fontsize="small")
    axes.set_xticks(range(begin - begin % 10 + 10, end, 10))
    axes.tick_params(labelsize="small", length=0)
    axes.set_xlim(begin, end)
    axes.grid(visible=True, axis="x", alpha=0.2)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)


def _level(axes: Any, values: list[Span], floor: float, _width: int) -> None:
    times = [values[0].begin, *(span.end for span in values)]
    heights = [floor + HIGH * span.value for span in values]
    axes.step(times, [*heights, heights[-1]], where="post", color=LEVEL, linewidth=1)


def _bus(axes: Any, values: list[Span], floor: float, width: int) -> None:
    middle, top = floor + HIGH / 2, floor + HIGH
    across: list[float] = []
    along: list[float] = []
    for span in values:
        left, right = span.begin, span.end
        across += [left, left + BEVEL_NS, right - BEVEL_NS, right, right - BEVEL_NS, left + BEVEL_NS, left]
        along += [middle, top, top, middle, floor, floor, middle]
        across, along = [*across, math.nan], [*along, math.nan]  # a box of its own
        if right - left >= CYCLE_NS - 1:
            low = span.value & LOW_BITS
            text = f"{low:0{width}b}" if width == 2 else f"{low:08x}"
            axes.text((left + right) / 2, middle, text, ha="center", va="center", fontsize=5.5, family="monospace")
    axes.plot(across, along, color=BUS, linewidth=1)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.waves", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("vcd", type=Path, metavar="FILE.vcd", help="the waveform of the tutorial's packet")
    parser.add_argument("--out", type=Path, metavar="FILE.svg", required=True, help="where to draw it")
    given = parser.parse_args()
    try:
        draw(vcd.read(given.vcd), given.out)
    except ImportError:
        print(f"benchmarks.waves: {not_installed('matplotlib')}", file=sys.stderr)
    except KeyError as error:
        print(f"benchmarks.waves: {given.vcd} has no signal {error}: it is of another codec", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"benchmarks.waves: {error}", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
