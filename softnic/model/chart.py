"""Charts of scaling: throughput over nodes, both logarithmic, in characters or as PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from softnic.model.predict import Prediction

WIDTH, HEIGHT = 64, 18
_MARKS = "abcdefghijklmnopqrstuvwxyz"
_IDEAL = "."


def series(rows: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    """Return the predictions of each strategy in the order of nodes."""
    found: dict[str, list[Prediction]] = {}
    for row in sorted(rows, key=lambda row: row.nodes):
        found.setdefault(row.strategy, []).append(row)
    return {strategy: found[strategy] for strategy in dict.fromkeys(row.strategy for row in rows)}


def text(rows: Sequence[Prediction], width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return a chart in characters: a letter for each strategy, the later one where two meet, `.` for ideal scaling."""
    most = max(row.nodes for row in rows)
    least = min(1.0, *(row.scaling for row in rows))
    high, low = math.log2(max(most, 2)), math.log2(least)
    grid = [[" "] * (width + 1) for _ in range(height + 1)]

    def place(nodes: int, scaling: float, mark: str) -> None:
        x = round(math.log2(nodes) / high * width)
        y = round((math.log2(scaling) - low) / (high - low) * height)
        if 0 <= y <= height:
            grid[height - y][x] = mark

    for step in range(width + 1):
        nodes = 2 ** (step / width * high)
        place(round(nodes), nodes, _IDEAL)
    groups = series(rows)
    for mark, group in zip(_MARKS, groups.values(), strict=False):
        for row in group:
            place(row.nodes, row.scaling, mark)
    lines = []
    for index, cells in enumerate(grid):
        value = 2 ** (low + (height - index) / height * (high - low))
        label = f"{value:7.4g}" if index % 3 == 0 else " " * 7
        lines.append(f"{label} |{''.join(cells)}".rstrip())
    lines.append(" " * 8 + "+" + "-" * (width + 1))
    last = str(most)
    lines.append(" " * 9 + "1" + "nodes".center(width - len(last)) + last)
    legend = ", ".join(f"{mark} {name}" for mark, name in zip(_MARKS, groups, strict=False))
    lines.append(f"throughput of one node = 1; {legend}, {_IDEAL} ideal")
    return "\n".join(lines)


def png(rows: Sequence[Prediction], path: Path, title: str = "") -> None:
    """Draw the scaling and the iteration times to a PNG file. Needs matplotlib; raises ImportError, OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    times, scaling = figure.subplots(1, 2)
    for strategy, group in series(rows).items():
        nodes = [row.nodes for row in group]
        times.plot(nodes, [1e3 * row.iteration.total_s for row in group], marker="o", markersize=3, label=strategy)
        scaling.plot(nodes, [row.scaling for row in group], marker="o", markersize=3, label=strategy)
    ideal = sorted({row.nodes for row in rows})
    scaling.plot(ideal, ideal, "k--", linewidth=1, label="ideal")
    for axes, what in ((times, "iteration, ms"), (scaling, "throughput, one node = 1")):
        axes.set(xlabel="nodes", ylabel=what, xscale="log", yscale="log")
        axes.set_xscale("log", base=2)
        axes.grid(True, alpha=0.3)
    times.legend(fontsize="small")
    figure.suptitle(title)
    figure.savefig(path, dpi=120, format="png")
