"""The tables and figures that `softnic reproduce` makes, in the order of the papers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.item import Item

ITEMS: dict[str, tuple[str, ...]] = {
    "inceptionn": ("fig7", "table2", "table3", "fig12", "fig13", "fig14", "fig15"),
    "smartnic": ("fig2", "fig4"),
    "a2dtwp": ("table1", "table2", "fig3", "fig4", "fig5"),
    "lgc": ("fig4", "table6", "fig13", "fig14"),
}
"""Items by paper. Each is made by the function `make` of the module `PAPER/ITEM.py` in this package."""
_QUICK = "--quick: a few steps and tiny batches; the figures mean nothing."


def make(paper: str, name: str, context: Context) -> Item:
    """Make an item.

    Raises
    ------
    ReproduceError
        The item cannot be made with this data, these models or without a package.
    MeasurementError, ClusterError
        Ranks or NICs failed.
    """
    module = importlib.import_module(f"softnic.experiments.reproduce.{paper}.{name}")
    item = cast(Callable[[Context], Item], module.make)(context)
    differs = [*item.differs, _QUICK] if context.quick else item.differs
    settings = {**item.settings, "quick": context.quick}
    return replace(item, paper=paper, name=name, differs=differs, settings=settings)
