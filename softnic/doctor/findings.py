"""The result of a check: what is so, and if that is wrong, why it matters and the command that fixes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A result. A note may be ignored; a problem makes the exit code 1."""

    check: str
    """Name of the check."""
    level: Level
    text: str
    why: str = ""
    """Why it matters; empty for `ok`."""
    fix: str = ""
    """The command, or the setting, that changes it; empty for `ok`."""


def ok(check: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, "ok", text)


def note(check: str, text: str, why: str, fix: str) -> Finding:
    """Return a finding that matters only to some uses."""
    return Finding(check, "note", text, why, fix)


def problem(check: str, text: str, why: str, fix: str) -> Finding:
    """Return a finding that something is wrong."""
    return Finding(check, "problem", text, why, fix)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 1 if there is a problem, 0 otherwise."""
    return int(any(each.level == "problem" for each in findings))
