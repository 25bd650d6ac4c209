"""Selection of the cases of a matrix that run by default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases for `parametrize`; all but the first `count` are marked slow."""
    return [
        case if index < count else pytest.param(*_values(case), marks=pytest.mark.slow)
        for index, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
