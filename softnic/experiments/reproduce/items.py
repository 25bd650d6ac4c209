"""Every table and figure that can be made again, in the order of the papers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.report import Item

ITEMS: dict[str, tuple[str, ...]] = {
    "inceptionn": ("fig7", "table2", "table3", "fig12", "fig13", "fig14", "fig15"),
    "smartnic": ("fig2", "fig4"),
    "a2dtwp": ("table1", "table2", "fig3", "fig4", "fig5"),
    "lgc": ("fig4", "table6", "fig13", "fig14"),
}
"""By paper. Each is made by `make` of the module `PAPER/ITEM.py` beside this one."""


def make(paper: str, name: str, context: Context) -> Item:
    """Raises ReproduceError, ClusterError, ImportError."""
    loaded = importlib.import_module(f"softnic.experiments.reproduce.{paper}.{name}")
    return cast(Callable[[Context], Item], loaded.make)(context)
