"""The tables and figures that `softnic reproduce` makes, in the order of the papers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from softnic.experiments.kept import ResultFile
from softnic.experiments.reproduce import stored
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.item import Item

ITEMS: dict[str, tuple[str, ...]] = {
    "inceptionn": (
        "fig1",
        "fig4",
        "fig5",
        "bounds",
        "fig7",
        "table2",
        "table3",
        "fig12",
        "packets",
        "fig13",
        "fig14",
        "fig15",
    ),
    "smartnic": ("fig2", "fig2b", "fig4", "fig4b", "iterations"),
    "a2dtwp": ("table1", "precision", "table2", "fig3", "fig4", "fig5"),
    "lgc": ("fig3", "fig4", "table6", "rates", "fig12", "fig13", "fig14"),
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


def make_or_read(paper: str, name: str, context: Context, directory: Path, *, again: bool = False) -> tuple[Item, bool]:
    """Return an item as the directory has it from a run that was asked for the same, or make it and keep it.

    An interrupted run continues with the units that it has not kept yet. `again` discards what the directory has.

    Returns
    -------
    tuple of Item and bool
        The item, and whether it was made now.

    Raises
    ------
    ReproduceError, MeasurementError, ClusterError
        As in `make`.
    OSError
        The result cannot be written.
    """
    file = ResultFile(directory / f"{paper}-{name}.json", again=again)
    asked = context.asked()
    found = file.result(asked)
    if found is not None:
        return stored.item(found), False
    made = make(paper, name, replace(context, kept=file, results=directory))
    return stored.item(file.finish(asked, stored.content(made))), True
