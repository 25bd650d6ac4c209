"""Selection of the cases of a matrix that run by default.

SOFTNIC_CASES=all adds those that even `-m slow` leaves out: more seeds, nodes and workers of what the others try. They
take minutes, and a change of what they test runs them once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

ALL_CASES = os.environ.get("SOFTNIC_CASES") == "all"
Case = TypeVar("Case")


def some(count: int, cases: Sequence[Case]) -> Sequence[Case]:
    """Return the first `count` cases, and all with SOFTNIC_CASES=all."""
    return cases if ALL_CASES else cases[:count]


def slow_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases for `parametrize`; all but the first `count` are marked slow."""
    return [
        case if index < count else pytest.param(*_values(case), marks=pytest.mark.slow)
        for index, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
