"""Parsing of a gradient method's arguments, such as `0.001,warmup=200`.

Arguments end at commas, but for one codec whose name has a comma of its own: `either:bounded:14,rht:5`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from inspect import Parameter
from typing import Any

from softnic.gradients.method import MethodError
from softnic.mpi.collectives import codec_choice

_BOOLEANS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}


def parse(name: str, kind: type, text: str) -> dict[str, Any]:
    """Return the arguments of a class by name. The first ones may be given by position.

    Raises
    ------
    MethodError
        The method `name` does not take a parameter, has it twice, or its value is not of its type.
    """
    known = _parameters(kind)
    unnamed = [key for key, each in known.items() if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    found: dict[str, Any] = {}
    for index, part in enumerate(_parts(text) if text else []):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals:
            key, value = (unnamed[index] if index < len(unnamed) else ""), key
            if not key:
                raise MethodError(f"{name} takes no further argument {value!r}: {_takes(known)}")
        if key not in known:
            raise MethodError(f"{name} has no parameter {key!r}: {_takes(known)}")
        if key in found:
            raise MethodError(f"{name} has {key} twice")
        found[key] = _convert(name, key, value, known[key].annotation)
    return found


def _parts(text: str) -> list[str]:
    """Return a text's parts between commas. `either:SPARSE,DENSE` is one part."""
    found: list[str] = []
    for part in text.split(","):
        before = found[-1].rpartition("=")[2].strip() if found else ""
        if before.startswith(f"{codec_choice.NAME}:") and "," not in before and "=" not in part:
            found[-1] += f",{part.strip()}"
        else:
            found.append(part)
    return found


def _takes(known: dict[str, Parameter]) -> str:
    return f"it takes {', '.join(known)}" if known else "it takes none"


def _parameters(kind: type) -> dict[str, Parameter]:
    """Return the parameters of the constructor, and of its base's if it passes others on."""
    found: dict[str, Parameter] = {}
    for base in kind.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(vars(base)["__init__"], eval_str=True).parameters.values())[1:]
        for each in parameters:
            if each.kind is not Parameter.VAR_KEYWORD:
                found.setdefault(each.name, each)
        if all(each.kind is not Parameter.VAR_KEYWORD for each in parameters):
            break
    return found


def _convert(method: str, key: str, text: str, kind: Any) -> Any:
    """Convert a text to a value of an annotated type."""
    converters: dict[Any, tuple[Callable[[str], Any], str]] = {
        bool: (_boolean, "0 or 1"),
        int: (int, "an integer"),
        float: (_number, "a number"),
    }
    if kind not in converters:
        if not text:
            raise MethodError(f"{method}: {key} is empty")
        return text
    convert, expected = converters[kind]
    try:
        return convert(text)
    except (KeyError, ValueError):
        raise MethodError(f"{method}: {key} is {text!r}, and {expected} is expected") from None


def _boolean(text: str) -> bool:
    return _BOOLEANS[text.lower()]


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value
