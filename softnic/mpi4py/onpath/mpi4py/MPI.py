"""`from mpi4py import MPI` returns softnic.MPI itself, so that its objects have one class under both names.

The options of `mpi4py.rc` take effect first. An environment variable MPI4PY_RC_NAME is stronger than the option `name`.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from typing import Any

from softnic import MPI
from softnic.mpi.environment import LIFETIME

LEVELS = {
    "single": MPI.THREAD_SINGLE,
    "funneled": MPI.THREAD_FUNNELED,
    "serialized": MPI.THREAD_SERIALIZED,
    "multiple": MPI.THREAD_MULTIPLE,
}
HANDLERS = {
    "exception": MPI.ERRORS_RETURN,
    "default": MPI.ERRORS_ARE_FATAL,
    "fatal": MPI.ERRORS_ARE_FATAL,
    "abort": MPI.ERRORS_ABORT,
}
SWITCH = {True: True, False: False, "yes": True, "no": False}
WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def option(name: str, default: Any) -> Any:
    """Return an option from the environment, else from `mpi4py.rc`, where that of the environment is stored."""
    rc = getattr(sys.modules["mpi4py"], "rc", None)
    text = os.environ.get(f"MPI4PY_RC_{name.upper()}")
    if text is None:
        return getattr(rc, name, default)
    value: Any = text.lower()
    if type(default) is int and text.isdigit():
        value = int(text)
    elif value in WORDS:
        value = WORDS[value]
    with suppress(AttributeError, TypeError):
        setattr(rc, name, value)
    return value


def chosen(name: str, default: Any, known: dict[Any, Any]) -> Any:
    """Return the value of `known` that an option selects. Warns of an unknown option value and uses the default."""
    value = option(name, default)
    if value not in known:
        warnings.warn(f"mpi4py.rc.{name}: unexpected value {value!r}", RuntimeWarning, stacklevel=2)
        return known[default]
    return known[value]


def configure() -> None:
    """Let the options take effect."""
    LIFETIME.initialized = chosen("initialize", True, SWITCH)
    chosen("threads", True, SWITCH)
    chosen("thread_level", "multiple", LEVELS)
    chosen("finalize", None, {None: None, **SWITCH})
    chosen("fast_reduce", True, SWITCH)
    chosen("recv_mprobe", True, SWITCH)
    size = option("irecv_bufsz", 32768)
    if type(size) is not int or size < 0:
        warnings.warn(f"mpi4py.rc.irecv_bufsz: unexpected value {size!r}", RuntimeWarning, stacklevel=2)
    handler = chosen("errors", "exception", HANDLERS)
    if handler != MPI.ERRORS_RETURN:
        MPI.COMM_WORLD.Set_errhandler(handler)
        MPI.COMM_SELF.Set_errhandler(handler)


configure()
sys.modules[__name__] = MPI
