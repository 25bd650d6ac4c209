"""Items in JSON, as result files have them: everything that is needed to show an item, its charts included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from benchmarks.papers.item import Item, ValueTable
from softnic.measure.plot import Bars, Lines

_CHARTS = {"bars": Bars, "lines": Lines}


def content(item: Item) -> dict[str, Any]:
    """Return an item in types of JSON."""
    made: dict[str, Any] = msgspec.to_builtins(item)
    kinds = {kind: name for name, kind in _CHARTS.items()}
    charts = [{"kind": kinds[type(chart)], **msgspec.to_builtins(chart)} for chart in item.charts]
    return {**made, "charts": charts}


class _Fields(msgspec.Struct):
    """The fields of an item, its charts as they are stored."""

    title: str
    tables: list[ValueTable]
    charts: list[dict[str, Any]]
    differs: list[str] = []
    findings: list[str] = []
    settings: dict[str, Any] = {}
    paper: str = ""
    name: str = ""


def item(given: Mapping[str, Any]) -> Item:
    """Return the item of which `content` made this. Raises ValueError, LookupError or TypeError for anything else."""
    fields = msgspec.convert(given, _Fields)
    for each in fields.tables:  # rows must fit their columns
        each.records()
        each.cells()
    charts = [_chart(each) for each in fields.charts]
    return Item(**{**msgspec.structs.asdict(fields), "charts": charts})


def _chart(given: Mapping[str, Any]) -> Bars | Lines:
    fields = {name: value for name, value in given.items() if name != "kind"}
    return msgspec.convert(fields, _CHARTS[given["kind"]])
