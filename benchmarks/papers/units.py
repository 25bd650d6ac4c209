"""Trainings on all cores, each kept as soon as it is done: a killed run continues where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.papers.learner import one_thread
from benchmarks.papers.parallel import each
from softnic.measure.kept import ResultFile
from softnic.measure.report import Progress

T = TypeVar("T")


@dataclass(frozen=True)
class Unit:
    """A unit that a file lacks or has."""

    settings: Mapping[str, Any]
    """All that its value depends on, in types of JSON."""
    arguments: tuple[object, ...]
    """Of the function that makes it."""


def made(
    file: ResultFile,
    kind: type[T],
    function: Callable[..., T],
    units: Mapping[str, Unit],
    progress: Progress,
    *,
    here: bool = False,
) -> dict[str, T]:
    """Return units by name, from the file or made now, in the order given.

    Parameters
    ----------
    file
        Where units are kept.
    kind
        The type of a unit's value.
    function
        Makes a value from a unit's arguments. Another process must be able to import it.
    here
        Whether to make units one after the other in this process, as is quicker for trainings of a few steps.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    missing = {name: unit for name, unit in units.items() if file.find(name, unit.settings, kind) is None}

    def keep(name: str, timed: tuple[T, float]) -> None:
        file.keep(name, missing[name].settings, timed[0], kind, timed[1])

    if here:
        with one_thread():
            for name, unit in missing.items():
                progress(name)
                keep(name, _timed(function, *unit.arguments))
    elif missing:
        each(_timed, {name: (function, *unit.arguments) for name, unit in missing.items()}, progress, keep)
    return {name: _found(file, name, unit, kind) for name, unit in units.items()}


def _found(file: ResultFile, name: str, unit: Unit, kind: type[T]) -> T:
    value = file.find(name, unit.settings, kind)
    assert value is not None, name
    return value


def _timed(function: Callable[..., T], *arguments: object) -> tuple[T, float]:
    began = time.monotonic()
    return function(*arguments), time.monotonic() - began
