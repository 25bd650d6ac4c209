"""Builds native/ into softnic._native with cffi in API mode, driven by pyproject.toml.

The headers named in PUBLIC are both the C interface and cffi's declarations, so the two cannot disagree. They contain
plain declarations only; text between `/* C only */` and `/* all */` is for the compiler and removed for cffi.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI
from setuptools import Extension
from setuptools.command.build_ext import build_ext

NATIVE = Path(__file__).resolve().parent
PUBLIC = (
    *("codecs.h", "reduce.h", "combine.h", "parallel.h", "feedback.h"),
    *("frames.h", "packets.h", "tap.h", "batch_io.h", "aead.h", "epoll.h", "stall_watchdog.h"),
)

_C_ONLY = re.compile(r"/\* C only \*/.*?/\* all \*/", re.DOTALL)


def declarations() -> str:
    """Return the declarations of the public headers for cffi."""
    texts = [_C_ONLY.sub("", (NATIVE / name).read_text()) for name in PUBLIC]
    return "\n".join(line for text in texts for line in text.splitlines() if not line.startswith("#"))


def write_bindings(path: Path) -> None:
    """Write the C source of the Python module."""
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source("softnic._native", "".join(f'#include "{name}"\n' for name in PUBLIC))
    path.parent.mkdir(parents=True, exist_ok=True)
    ffi.emit_c_code(str(path))


class BuildNative(build_ext):
    """A build_ext that writes the bindings of softnic._native before compiling them."""

    def build_extension(self, ext: Extension) -> None:
        if ext.name == "softnic._native":
            generated = Path(self.build_temp) / "_native.c"
            write_bindings(generated)
            ext.sources = [*ext.sources, str(generated)]
            ext.include_dirs = [*ext.include_dirs, str(NATIVE)]
        super().build_extension(ext)
