"""Results of experiments: files that runs continue from, figures over seeds, regions of pages, plots."""

from __future__ import annotations

from softnic.experiments.kept import DIGITS, InUseError, ResultFile, alone, plain, text, version
from softnic.experiments.pages import PageError, rebuilt, regions, table
from softnic.experiments.plot import Chart, Curves
from softnic.experiments.spread import SEEDS, Spread
from softnic.experiments.svg import drawn, ticks

__all__ = [
    "DIGITS",
    "SEEDS",
    "Chart",
    "Curves",
    "InUseError",
    "PageError",
    "ResultFile",
    "Spread",
    "alone",
    "drawn",
    "plain",
    "rebuilt",
    "regions",
    "table",
    "text",
    "ticks",
    "version",
]
