"""Error classes and codes that a program adds."""

from __future__ import annotations

from softnic.comm.error_codes import CODES
from softnic.comm.errors import ArgumentError


def add_class() -> int:
    """Return a new error class."""
    return CODES.add(None)


def add_code(of: int) -> int:
    """Return a new error code of a class. Raises ArgumentError."""
    if CODES.class_of.get(of) != of:
        raise ArgumentError(f"{of} is not an error class")
    return CODES.add(of)


def add_string(code: int, text: str) -> None:
    """Set the text of an added class or code; empty: none. Raises ArgumentError."""
    if code not in CODES.added:
        raise ArgumentError(f"{code} is not an error class or code that was added")
    CODES.texts[code] = text


def remove_string(code: int) -> None:
    """Remove the text of an added class or code. Raises ArgumentError."""
    add_string(code, "")


def remove_class(of: int) -> None:
    """Remove the added class `of` without codes and text. Raises ArgumentError."""
    if CODES.class_of.get(of) != of or list(CODES.class_of.values()).count(of) > 1:
        raise ArgumentError(f"{of} is not an error class, or has codes")
    _remove(of)


def remove_code(code: int) -> None:
    """Remove an added code without a text. Raises ArgumentError."""
    if CODES.class_of.get(code, code) == code:
        raise ArgumentError(f"{code} is not an error code that was added")
    _remove(code)


def _remove(number: int) -> None:
    if number not in CODES.added or CODES.texts[number]:
        raise ArgumentError(f"{number} was not added, or has a text")
    CODES.added.remove(number)
    del CODES.class_of[number], CODES.texts[number]
