"""The top of README.md and docs/index.md: a picture of all-reduce and of time to accuracy, and a table of accuracy.

The picture is an SVG of its own, not matplotlib's, so that it has a light and a dark form, which the reader's settings
choose, and text that is readable at the width of a page. The figures are those of docs/results: `allreduce-RATE.json`,
documents of `python -m benchmarks.peers --what allreduce --json`, and the trainings of `softnic compare`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from softnic.experiments.compare import advice
from softnic.experiments.compare.advice import Advice
from softnic.experiments.compare.summary import RATES, REFERENCE, ModelSummary, is_peer
from softnic.measure.pages import table
from softnic.units import rate_bps, text_rate

TITLES = {
    "hdc": "digits, fully connected",
    "convnet": "digits, convolutions",
    "resnet": "photographs, residual",
    "transformer": "text, transformer",
}
DRAWN = ("hdc", "transformer")
"""Models whose trainings are drawn: the one that PowerSGD suits best, and the one that it suits least."""
_WIDTH, _HEIGHT = 960, 345
_TOP, _BOTTOM, _LEFT, _PLOT = 66, 284, 62, 98
"""Of a chart: the upper and the lower edge, the margin for the axis, and the width."""
_LINE = 17
"""Least distance between two labels."""
_LIGHT = {"exact": "#57606a", "half": "#9a6700", "power": "#8250df", "softnic": "#0969da", "best": "#0969da"}
_DARK = {"exact": "#9198a1", "half": "#d29922", "power": "#b392f0", "softnic": "#4493f8", "best": "#4493f8"}
"""Colours of lines by style, on a light and on a dark page."""
_FONT = 'system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif'


def _colours(lines: Mapping[str, str], card: str, text: str, muted: str, grid: str) -> str:
    rules = [f"svg {{ background: {card}; fill: {text}; }} .card {{ fill: {card}; }}"]
    rules.append(f".muted {{ fill: {muted}; }} .grid {{ stroke: {grid}; }}")
    rules += [
        f"path.{style} {{ stroke: {colour}; }} text.{style}, circle.{style} {{ fill: {colour}; }}"
        for style, colour in lines.items()
    ]
    return "\n".join(rules)


_STYLE = f"""\
svg {{ font: 14px {_FONT}; }} path {{ fill: none; stroke-width: 2; }}
.title {{ font-size: 15.5px; font-weight: 600; }} text.softnic {{ font-weight: 600; }}
path.softnic {{ stroke-width: 3; }} path.best {{ stroke-dasharray: 5 3; }}
{_colours(_LIGHT, "#fff", "#24292f", "#57606a", "#d0d7de")}
@media (prefers-color-scheme: dark) {{
{_colours(_DARK, "#0d1117", "#e6edf3", "#9198a1", "#3d444d")}
}}"""


@dataclass(frozen=True)
class MethodLine:
    """A method: seconds by rate; rates at which it was not measured, or never reached the score, are missing."""

    name: str
    style: str
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Panel:
    """A chart: seconds over the rate of the links, both logarithmic."""

    title: str
    subtitle: str
    lines: Sequence[MethodLine]
    note: str = ""


def allreduce(directory: Path) -> Panel | None:
    """Return the chart of all-reduce; None without results."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    megabytes = 0.0
    for rate in RATES:
        path = directory / f"allreduce-{rate}.json"
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            megabytes = content["settings"]["megabytes"]
            for row in content["results"]:
                if row["seconds"] is not None and row["data"] != "hdc":
                    found.setdefault((row["who"], row["what"]), {})[rate] = row["seconds"]
    shown = (
        ("Gloo exact", "exact", ("Gloo", "exact")),
        ("Gloo fp16", "half", ("Gloo", "fp16")),
        (f"softnic {advice.RECOMMENDED}", "softnic", ("softnic, nonblocking", advice.RECOMMENDED)),
    )
    lines = [MethodLine(name, style, found[key]) for name, style, key in shown if key in found]
    return Panel("All-reduce", f"{megabytes:g} MB of floats, 4 hosts", lines) if lines else None


def training(summary: ModelSummary) -> Panel:
    """Return the chart of a model's time to the exact training's score."""
    model = advice.compared(summary)
    given = {rate: advice.advise(model, rate_bps(rate)) for rate in RATES}

    def line(name: str, style: str, wanted: str) -> MethodLine:
        return MethodLine(name, style, _soonest(given, wanted.__eq__))

    lines = [line("exact", "exact", REFERENCE), line("fp16", "half", "fp16")]
    power = MethodLine("PowerSGD", "power", _soonest(given, lambda name: name.startswith("powersgd") and is_peer(name)))
    lines += [power] if power.seconds else []
    lines += [line(f"softnic {advice.RECOMMENDED}", "softnic", advice.RECOMMENDED)]
    best = {rate: each.ours.seconds for rate, each in given.items() if each.ours is not None}
    lines.append(MethodLine("softnic, best", "best", best))
    note = "" if power.seconds else "PowerSGD does not reach the accuracy"
    return Panel("Time to accuracy", f"{TITLES[summary.model]}; {summary.workers} hosts", lines, note)


def _soonest(given: Mapping[str, Advice], wanted: Callable[[str], bool]) -> dict[str, float]:
    """Return the least time of the methods that `wanted` accepts, by rate."""
    found = {}
    for rate, each in given.items():
        times = [choice.seconds for choice in each.choices if wanted(choice.method.method)]
        if times:
            found[rate] = min(times)
    return found


def svg(shown: Sequence[Panel]) -> str:
    """Return the picture of at least one chart."""
    width = _WIDTH / len(shown)
    alt = "Seconds over the rate of the links: " + "; ".join(f"{each.title}, {each.subtitle}" for each in shown)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(alt)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="card" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
    ]
    for number, panel in enumerate(shown):
        parts.append(f'<g transform="translate({number * width:.1f} 0)">')
        parts += _panel(panel)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> list[str]:
    values = [value for line in panel.lines for value in line.seconds.values()]
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))

    def y(seconds: float) -> float:
        return _BOTTOM - (math.log10(seconds) - low) / (high - low) * (_BOTTOM - _TOP)

    parts = [
        f'<text class="title" x="12" y="26">{escape(panel.title)}</text>',
        f'<text class="muted" x="12" y="45">{escape(panel.subtitle)}</text>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<path class="grid" style="stroke-width:1" d="M{_LEFT} {at:.1f}h{_PLOT}"/>')
        parts.append(f'<text class="muted" x="{_LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{_seconds(power)}</text>')
    places = {rate: _LEFT + 8 + index * (_PLOT - 16) / (len(RATES) - 1) for index, rate in enumerate(RATES)}
    for index, (rate, x) in enumerate(places.items()):
        label = text_rate(rate_bps(rate)).removesuffix("bit/s").replace(" ", "")
        parts.append(
            f'<text class="muted" x="{x:.1f}" y="{_BOTTOM + 17 + index % 2 * 15}" text-anchor="middle">{label}</text>'
        )
    parts.append(f'<text class="muted" x="{_LEFT + _PLOT + 14}" y="{_BOTTOM + 32}">bit/s</text>')
    for line in panel.lines:
        points = [(places[rate], y(line.seconds[rate])) for rate in RATES if rate in line.seconds]
        parts.append(f'<path class="{line.style}" d="M{" L".join(f"{x:.1f} {at:.1f}" for x, at in points)}"/>')
        parts += [f'<circle class="{line.style}" cx="{x:.1f}" cy="{at:.1f}" r="2.5"/>' for x, at in points]
    for line, at in _spread([(line, y(line.seconds[RATES[-1]])) for line in panel.lines if RATES[-1] in line.seconds]):
        text = f"{line.name} {_duration(line.seconds[RATES[-1]])}"
        parts.append(f'<text class="{line.style}" x="{_LEFT + _PLOT + 2}" y="{at + 4:.1f}">{escape(text)}</text>')
    if panel.note:
        parts.append(f'<text class="muted" x="12" y="{_HEIGHT - 8}">{escape(panel.note)}</text>')
    return parts


def _spread(labels: Sequence[tuple[MethodLine, float]]) -> list[tuple[MethodLine, float]]:
    """Return the labels from top to bottom, at least _LINE apart."""
    placed: list[tuple[MethodLine, float]] = []
    for line, at in sorted(labels, key=lambda each: each[1]):
        placed.append((line, max(at, placed[-1][1] + _LINE) if placed else at))
    return placed


def _seconds(power: int) -> str:
    return f"{10.0**power:g} s" if power >= 0 else f"{10.0 ** (power + 3):g} ms"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 20 else f"{seconds:.1f} s"


def panels(directory: Path, models: Sequence[ModelSummary]) -> list[Panel]:
    """Return the charts from the results in `directory` and summaries of models. Raises OSError, ValueError."""
    shown = [training(each) for each in models if each.model in DRAWN]
    return [panel for panel in (allreduce(directory), *shown) if panel is not None]


def accuracy(models: Sequence[ModelSummary]) -> str:
    """Return the table of scores by exact trainings and by the recommended codec, as Markdown."""
    shown = [(each, [method for method in each.methods if method.method == advice.RECOMMENDED]) for each in models]
    columns = [(each, each.of(REFERENCE).score, found[0].score) for each, found in shown if found]
    rows = [
        [name, *("diverged" if score is None else advice.score(each.model, score) for each, score in scores)]
        for name, scores in (
            ("exact", [(each, exact) for each, exact, _ in columns]),
            (f"`{advice.RECOMMENDED}`", [(each, own) for each, _, own in columns]),
        )
    ]
    return table(["", *(TITLES.get(each.model, each.model) for each, _, _ in columns)], rows)
