"""Error classes and codes of MPI, their texts, and those that a program adds."""

from __future__ import annotations

import itertools

from softnic.comm import error_classes
from softnic.comm.error_classes import ERR_LASTCODE, ERR_UNKNOWN, SUCCESS

_TEXTS = {
    "BUFFER": "invalid buffer", "COUNT": "invalid count", "TYPE": "invalid datatype", "TAG": "invalid tag",
    "COMM": "invalid communicator", "RANK": "invalid rank", "REQUEST": "invalid request", "ROOT": "invalid root",
    "GROUP": "invalid group", "OP": "invalid operation", "TOPOLOGY": "invalid topology", "DIMS": "invalid dimensions",
    "ARG": "invalid argument", "UNKNOWN": "unknown error", "TRUNCATE": "message does not fit the receive buffer",
    "OTHER": "communication failed", "INTERN": "internal error", "IN_STATUS": "error code is in the status",
    "PENDING": "request is in progress", "KEYVAL": "invalid key of an attribute", "NO_MEM": "out of memory",
    "INFO": "invalid info object", "INFO_KEY": "key of info too long", "INFO_NOKEY": "info has no such key",
    "INFO_VALUE": "value of info too long", "ERRHANDLER": "invalid error handler", "SESSION": "invalid session",
    "UNSUPPORTED_OPERATION": "operation is not supported", "PROC_FAILED": "rank is gone",
}  # fmt: skip


class _Codes:
    """The error classes and codes that exist, with their texts."""

    def __init__(self) -> None:
        self.texts = {SUCCESS: "no error"}
        self.class_of = {SUCCESS: SUCCESS, ERR_LASTCODE: ERR_LASTCODE}
        for name in error_classes.__all__:
            if name.startswith("ERR_") and name != "ERR_LASTCODE":
                number = getattr(error_classes, name)
                self.class_of[number] = number
                self.texts[number] = _TEXTS.get(name.removeprefix("ERR_"), name.removeprefix("ERR_").lower())
        self._numbers = itertools.count(ERR_LASTCODE + 1)
        self.added: set[int] = set()
        self.last_used = ERR_LASTCODE

    def add(self, error_class: int | None) -> int:
        """Return a new code of a class, or a new class."""
        number = next(self._numbers)
        self.class_of[number] = number if error_class is None else error_class
        self.texts[number] = ""
        self.added.add(number)
        self.last_used = number
        return number


CODES = _Codes()


def error_class(code: int) -> int:
    """Return the class of an error code; numbers that are none beyond the last class are their own."""
    if code > ERR_LASTCODE:
        return CODES.class_of.get(code, code)
    return CODES.class_of.get(code, ERR_UNKNOWN)


def error_string(code: int) -> str:
    """Return the text of an error class or code."""
    return CODES.texts.get(code, CODES.texts[ERR_UNKNOWN])
