"""Items in JSON, as result files have them: everything that is needed to show an item, its charts included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from softnic.experiments.plot import Bars, Lines
from softnic.experiments.reproduce.item import Item, ValueTable

_CHARTS = {"bars": Bars, "lines": Lines}


def content(item: Item) -> dict[str, Any]:
    """Return an item in types of JSON."""
    made: dict[str, Any] = msgspec.to_builtins(item)
    kinds = {kind: name for name, kind in _CHARTS.items()}
    charts = [{"kind": kinds[type(chart)], **msgspec.to_builtins(chart)} for chart in item.charts]
    return {**made, "charts": charts}


def item(given: Mapping[str, Any]) -> Item:
    """Return the item of which `content` made this."""
    fields = {**given, "charts": [_chart(each) for each in given["charts"]]}
    fields["tables"] = [msgspec.convert(each, ValueTable) for each in given["tables"]]
    return Item(**fields)


def _chart(given: Mapping[str, Any]) -> Bars | Lines:
    fields = {name: value for name, value in given.items() if name != "kind"}
    return msgspec.convert(fields, _CHARTS[given["kind"]])
