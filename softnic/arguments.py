"""Types of arguments for argparse, whose errors say what is expected."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from softnic.version import version

T = TypeVar("T")


class ShowVersion(argparse.Action):
    """The action of --version, which looks it up only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str = argparse.SUPPRESS, **_given: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_given: Any) -> None:
        """Print it and end the program."""
        print(f"{parser.prog} {version()}")
        parser.exit()


def argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Makes an argparse type of `parse` that keeps the text of its ValueError."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def count(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Makes an argparse type: a whole number from `minimum` to `maximum`."""
    wanted = f"a whole number from {minimum} to {maximum}" if maximum else f"a whole number, at least {minimum}"

    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < minimum or (maximum and int(text) > maximum):
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return int(text)

    return convert


def number(minimum: float, maximum: float, wanted: str) -> Callable[[str], float]:
    """Makes an argparse type: a number from `minimum` to `maximum`, which errors call `wanted`."""

    def convert(text: str) -> float:
        with suppress(ValueError):
            if minimum <= float(text) <= maximum:
                return float(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")

    return convert
