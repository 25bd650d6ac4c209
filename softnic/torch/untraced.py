"""Excludes the backend from tracing by torch.compile.

In a compiled program Dynamo traces every Python frame that it meets, including those that C++ calls: the methods of a
process group and of a Work, and communication hooks. It treats a process group as an opaque object with a few members
and fails at all others. `torch.compiler.disable` excludes a function and all that it calls.
"""

# No `from __future__ import annotations`: torch compares a hook's annotations with its own classes.

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import torch

_disable: Any = torch.compiler.disable
Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """Return the function in a form that Dynamo neither traces nor enters."""
    return cast(Function, _disable(function, reason="softnic's backend is not traced"))


class Untraced:
    """Base class whose subclasses have no traced methods, static methods, class methods or properties."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if isinstance(member, FunctionType):
                setattr(cls, name, untraced(member))
            elif isinstance(member, (staticmethod, classmethod)):
                setattr(cls, name, type(member)(untraced(member.__func__)))
            elif isinstance(member, property):
                read, write, delete = map(_accessor, (member.fget, member.fset, member.fdel))
                setattr(cls, name, property(read, write, delete, member.__doc__))


def _accessor(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    return None if function is None else untraced(function)
