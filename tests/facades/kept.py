"""Results of experiments: files that runs continue from, figures over seeds, regions of pages."""

from __future__ import annotations

from softnic.experiments.kept import DIGITS, InUseError, ResultFile, alone, plain, text, version
from softnic.experiments.pages import PageError, rebuilt, regions, table
from softnic.experiments.spread import SEEDS, Spread

__all__ = [
    "DIGITS",
    "SEEDS",
    "InUseError",
    "PageError",
    "ResultFile",
    "Spread",
    "alone",
    "plain",
    "rebuilt",
    "regions",
    "table",
    "text",
    "version",
]
