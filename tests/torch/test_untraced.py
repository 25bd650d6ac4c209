"""Classes and functions that torch.compile does not trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from softnic.torch.untraced import Untraced, untraced


def is_traced() -> bool:
    return bool(torch.compiler.is_compiling())


class Methods(Untraced):
    def method(self) -> bool:
        return is_traced()

    alias = method

    @classmethod
    def of_class(cls) -> bool:
        return is_traced()

    @staticmethod
    def static() -> bool:
        return is_traced()

    @property
    def read(self) -> bool:
        return is_traced()

    def overridden(self) -> bool:
        return True


class Derived(Methods):
    def overridden(self) -> bool:
        return is_traced()

    def own(self) -> bool:
        return is_traced()


@untraced
def function() -> bool:
    return is_traced()


CALLS: dict[str, Callable[[Derived], bool]] = {
    "method": lambda made: made.method(),
    "alias": lambda made: made.alias(),
    "class method": lambda made: made.of_class(),
    "static method": lambda made: made.static(),
    "property": lambda made: made.read,
    "overridden": lambda made: made.overridden(),
    "a subclass's own": lambda made: made.own(),
    "function": lambda _: function(),
}


@pytest.mark.parametrize("name", CALLS)
def test_compiled_functions_call_it_untraced(name: str) -> None:
    torch._dynamo.reset()
    call = CALLS[name]

    def program(made: Derived, values: torch.Tensor) -> tuple[torch.Tensor, bool, bool]:
        return values + 1, call(made), torch.compiler.is_compiling()

    compiled: Any = torch.compile(program, backend="eager")
    _, found, here = compiled(Derived(), torch.ones(2))
    assert not found
    assert here, "the caller itself was not compiled"


def test_it_keeps_its_name_and_documentation() -> None:
    assert Methods.method.__name__ == "method"
    assert Derived.overridden.__qualname__ == "Derived.overridden"
