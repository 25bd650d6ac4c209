"""Results of experiments in JSON files that an interrupted run continues from, one file for an item.

A file has two parts. Units are what is measured or trained in one piece: each is written as soon as it is done, with
its settings, and is measured again only if these differ. The result is made of the units, and replaces them. All
floats are rounded to `DIGITS` significant digits, so that files are small, also in the run that makes them: a
continued run gives the same result as one that was never interrupted.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from softnic.measure.report import machine

T = TypeVar("T")
DIGITS = 6
_WIDTH = 120
_UNITS, _RESULT, _ASKED = "units", "result", "asked"


class InUseError(Exception):
    """Another run keeps its results in the same directory."""


class ResultFile:
    """The units and the result of one item.

    Parameters
    ----------
    path
        The file, which need not exist. None: nothing is kept.
    again
        Whether to start without what the file holds.
    """

    def __init__(self, path: Path | None, *, again: bool = False) -> None:
        self._path = path
        self._content: dict[str, Any] = {} if again else _read(path)

    @property
    def content(self) -> Mapping[str, Any]:
        """All that the file holds; empty if there is no such file."""
        return self._content

    def once(self, unit: str, settings: Mapping[str, Any], measure: Callable[[], T], kind: type[T]) -> T:
        """Return a unit's value from the file, or measure it and write it to the file.

        Parameters
        ----------
        unit
            Name of the unit, unique in the file: `AlexNet, inceptionn:10, seed 2`.
        settings
            All that the value depends on, in types of JSON.
        measure
            Returns the value, of which msgspec must be able to make JSON: dataclasses, numbers, words, and lists and
            dictionaries of them, but not None by itself. NaN and infinities become None.
        kind
            The type of the value.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        found = self.find(unit, settings, kind)
        if found is not None:
            return found
        began = time.monotonic()
        value = measure()
        return self.keep(unit, settings, value, kind, time.monotonic() - began)

    def find(self, unit: str, settings: Mapping[str, Any], kind: type[T]) -> T | None:
        """Return a unit's value if the file has it for the same settings, else None."""
        stored = self._content.get(_UNITS, {}).get(unit)
        if stored is None or stored["settings"] != plain(settings):
            return None
        try:
            return msgspec.convert(stored["value"], kind)
        except msgspec.ValidationError:
            return None

    def keep(self, unit: str, settings: Mapping[str, Any], value: T, kind: type[T], took_s: float) -> T:
        """Write a unit to the file. Returns the value as `find` does from now on. Raises OSError."""
        stored = plain(value)
        self._content.setdefault(_UNITS, {})[unit] = {
            "settings": plain(settings),
            "value": stored,
            "took_s": round(took_s, 1),
            "softnic": version(),
        }
        self._write()
        return msgspec.convert(stored, kind)

    def result(self, asked: Mapping[str, Any]) -> Any:
        """Return the result if the file has one that was made as asked, else None."""
        return self._content.get(_RESULT) if self._content.get(_ASKED) == plain(asked) else None

    def finish(self, asked: Mapping[str, Any], result: Any) -> Any:
        """Write the result in place of the units, with the machine and the version that made it.

        `asked` holds all settings of the run. Returns the result as `result` does from now on. Raises OSError.
        """
        head = {"softnic": version(), "machine": plain(machine()), _ASKED: plain(asked)}
        self._content = {**head, _RESULT: plain(result)}
        self._write()
        return self._content[_RESULT]

    def _write(self) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(text(self._content) + "\n", encoding="utf-8")
        part.replace(self._path)


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    units = content.get(_UNITS, {})
    valid = [(name, unit) for name, unit in units.items() if _is_unit(unit)] if isinstance(units, dict) else []
    return {**content, _UNITS: dict(valid)} if _UNITS in content else content


def _is_unit(unit: Any) -> bool:
    return isinstance(unit, dict) and {"settings", "value"} <= set(unit)


def plain(value: Any, digits: int = DIGITS) -> Any:
    """Return a value in types of JSON, floats rounded, None in place of NaN and infinities."""
    return _rounded(msgspec.to_builtins(value, str_keys=True), digits)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each, digits) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each, digits) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def text(value: Any, indent: int = 0) -> str:
    """Return JSON with a line for each list or object that has no other in it, and for each that is short.

    Lists of words only, which are sentences where they are long, have a line for each.
    """
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) + indent <= _WIDTH or _is_row(value):
        return line
    margin = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        inside = (f"{json.dumps(name, ensure_ascii=False)}: {text(each, indent + 1)}" for name, each in value.items())
        return "{" + margin + f",{margin}".join(inside) + "\n" + " " * indent + "}"
    return "[" + margin + f",{margin}".join(text(each, indent + 1) for each in value) + "\n" + " " * indent + "]"


def _is_row(value: Any) -> bool:
    if not isinstance(value, dict | list):
        return True
    members = list(value.values() if isinstance(value, dict) else value)
    return not any(isinstance(each, dict | list) for each in members) and not all(
        isinstance(each, str) for each in members
    )


def checkout() -> Path | None:
    """Return the root of the checkout that softnic runs from; None if it was installed without one."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "docs" / "results").is_dir() else None


_version: list[str] = []


def version() -> str:
    """Return the version of softnic, with the revision of the checkout if it runs from one: `0.1.0+1a2b3c4`."""
    if not _version:
        _version.append("+".join(filter(None, (machine()["softnic"], _revision()))))
    return _version[0]


def _revision() -> str:
    root = checkout()
    if root is None:
        return ""
    command = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold a directory for this run, created if missing. Raises InUseError if another run holds it, and OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(f"{directory} is in use by another run") from None
        yield
    finally:
        os.close(fd)
