"""The tables and figures that `softnic reproduce` makes, in the order of the papers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from benchmarks.papers import stored
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, ReproduceError
from softnic.measure.kept import ResultFile

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
    module = importlib.import_module(f"benchmarks.papers.{paper}.{name}")
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
    path = directory / f"{paper}-{name}.json"
    file = ResultFile(path, again=again)
    asked = context.asked()
    found = file.result(asked)
    if found is not None:
        try:
            return stored.item(found), False
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ReproduceError(f"{path} has no valid result ({error}): --again makes it again") from error
    made = make(paper, name, replace(context, kept=file, results=directory))
    return stored.item(file.finish(asked, stored.content(made))), True
