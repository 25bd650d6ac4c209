"""What the library of softnic._native is made of, for tests that build its C otherwise, without Python."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_EXTENSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"][0]

FLAGS = [*_EXTENSION["extra-compile-args"], "-I", str(ROOT / "native")]
SOURCES = [
    path
    for path in sorted((ROOT / "native").glob("*/*.c"))
    if path.parent.name != "preload" and "<Python.h>" not in path.read_text()
]
