"""The public API has complete docstrings: a first sentence, parameters, results."""

from __future__ import annotations

import importlib
import inspect
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests import needs

PUBLIC = (
    "softnic",
    "softnic.MPI",
    "softnic.codecs",
    "softnic.gradients",
    "softnic.socket",
    "softnic.torch",
)


def own(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("softnic")


def public(name: str) -> Iterator[tuple[str, Any, str]]:
    """Yield each public function, class and method of a module: dotted name, object, docstrings of its classes."""
    module = importlib.import_module(name)
    standard = set(dir(socket)) | set(dir(socket.socket)) if name == "softnic.socket" else set()
    for attribute in getattr(module, "__all__", None) or [each for each in dir(module) if not each.startswith("_")]:
        thing = getattr(module, attribute)
        if (
            attribute in standard - {"socket"}
            or not own(thing)
            or not (inspect.isclass(thing) or inspect.isroutine(thing))
        ):
            continue
        yield f"{name}.{attribute}", thing, ""
        if inspect.isclass(thing):
            for member, value in inspect.getmembers(thing):
                function = value.fget if isinstance(value, property) else value
                if (
                    not member.startswith("_")
                    and member not in standard
                    and inspect.isfunction(function)
                    and own(function)
                ):
                    above = "\n".join(each.__doc__ or "" for each in thing.__mro__ if own(each))
                    yield f"{name}.{attribute}.{member}", value, above


def missing(thing: Any, owner: str = "") -> list[str]:
    """Return what the docstring of a function, class or property lacks: a first sentence, a parameter, the result.

    `owner` is the docstring of its class and those above, which may describe parameters that several methods have.
    """
    text = inspect.getdoc(thing) or ""
    if "standard module" in text:  # it describes the rest
        return []
    if not text:
        return ["a docstring"]
    lacks = [] if text.split("\n\n")[0].rstrip().endswith((".", ":")) else ["a first sentence"]
    if isinstance(thing, property) or inspect.isclass(thing):
        return lacks
    if not inspect.isfunction(thing):
        return lacks
    try:
        signature = inspect.signature(thing)
    except ValueError:  # it wraps a function of C
        return lacks
    named = [name.lstrip("_") for name in signature.parameters if name not in ("self", "cls")]
    lacks += [f"parameter {name}" for name in named if not re.search(rf"\b{name}\b", text + owner)]
    if signature.return_annotation not in (None, "None", "Never", "NoReturn", "Self", inspect.Signature.empty):
        lacks += [] if re.search(r"^(Returns|Yields)\n---|\b[Rr]eturns?\b", text, re.MULTILINE) else ["the result"]
    return lacks


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_have_complete_docstrings(module: str) -> None:
    if module.endswith("torch"):
        needs.module("torch")
    wrong = {name: lacks for name, thing, owner in public(module) if (lacks := missing(thing, owner))}
    assert wrong == {}
