"""Counts what C asks of a turn in Python, which tests see in no other way: the answers are the same, only slower."""

from __future__ import annotations

from collections import Counter
from typing import Any

from softnic.nic.link_turn import LinkTurn


def count_calls(turn: LinkTurn, counts: Counter[str], *names: str) -> None:
    """From now on, count in `counts` how often C asks for each of these methods (softnic/nic/link_turn.py and the
    classes derived from it)."""
    for name in names:
        _count(turn, counts, name)


def _count(turn: LinkTurn, counts: Counter[str], name: str) -> None:
    method = getattr(turn, name)

    def counted(*arguments: Any) -> Any:
        counts[name] += 1
        return method(*arguments)

    setattr(turn, name, counted)
