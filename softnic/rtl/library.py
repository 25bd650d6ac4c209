"""The engines as shared libraries, made when they are first needed and kept under `XDG_CACHE_HOME` (or ~/.cache).

A library's name has a hash of all that it is made from: sources, Verilator, compiler. Processes that need it at the
same time wait for the one that makes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import platform
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from softnic.rtl import verilator
from softnic.rtl.verilator import RtlError

FLAGS = ("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-w")
ONCE = ("-O0",)
"""Behind FLAGS for Verilator's `__Slow` files, which run once for a model: they are half of the code."""
SHARED = ("-fno-gate", "-fno-dfg")
OPTIONS = {"rht_encoder": SHARED, "rht_decoder": SHARED}
"""For Verilator, by module: a hundred adders share their code, which is compiled and runs in less time."""
_PLACES = (Path(__file__).parent / "verilog", Path(__file__).parents[2] / "native" / "rtl")
"""Where the sources are in an installation, and in a checkout."""
_KERNELS = re.compile(r"^KERNELS\((\w+), ", re.MULTILINE)
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp")


@dataclass(frozen=True)
class Design:
    """What a library is made from: modules and the C++ that drives them."""

    name: str
    driver: str
    tops: tuple[str, ...]
    options: tuple[str, ...] = ()
    """For Verilator."""
    runtime: tuple[str, ...] = ()
    """Further files of Verilator's own C++."""


def sources() -> Path:
    """Return the folder of the engines."""
    for place in _PLACES:
        if (place / "driver.cpp").exists():
            return place
    raise RtlError(f"the engines' sources are not in {_PLACES[0]}: install softnic anew")


def codecs() -> tuple[str, ...]:
    """Return the names of the codecs that have an encoder and a decoder, as the driver lists them."""
    return tuple(_KERNELS.findall((sources() / "driver.cpp").read_text()))


def kernels() -> Design:
    """Return the design of the codecs' kernels: two engines of each."""
    return Design(
        "rtl", "driver.cpp", tuple(f"{codec}_{side}" for codec in codecs() for side in ("encoder", "decoder"))
    )


def path(design: Design | None = None) -> Path:
    """Return the path of a library, by default the kernels'; make it if need be. Raises RtlError if it cannot be."""
    if reason := verilator.missing():
        raise RtlError(reason)
    design = design or kernels()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "softnic"
    library = cache / f"{design.name}-{_digest(design)}.so"
    if library.exists():
        return library
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "rtl.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                with tempfile.TemporaryDirectory(dir=cache) as folder:
                    _make(design, Path(folder)).replace(library)
    except OSError as error:
        raise RtlError(f"the library of the RTL engines cannot be kept: {error}") from None
    return library


def _digest(design: Design) -> str:
    found = hashlib.sha256()
    compiler = verilator.compiler() or ""
    said = verilator.run([compiler, "--version"])
    options = (option for top in design.tops for option in (top, *_options(design, top)))
    made_from = (*options, *FLAGS, *ONCE, *verilator.OPTIONS)
    for text in (verilator.version(), compiler, said, platform.machine(), *made_from):
        found.update(text.encode() + b"\0")
    for source in sorted(sources().iterdir()):
        if source.suffix in (".sv", ".cpp"):
            found.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _options(design: Design, top: str) -> tuple[str, ...]:
    return (*design.options, *OPTIONS.get(top, ()))


def _make(design: Design, folder: Path) -> Path:
    compiler = verilator.compiler() or ""
    include = verilator.include()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        models = list(
            pool.map(lambda top: verilator.translate(top, sources(), folder / top, _options(design, top)), design.tops)
        )
        runtime = (include / name for name in (*_RUNTIME, *design.runtime))
        files = [sources() / design.driver, *runtime, *itertools.chain(*models)]
        folders = [f"-I{place}" for place in (include, include / "vltstd", *(folder / top for top in design.tops))]

        def compiled(file: Path) -> str:
            target = folder / f"{file.stem}.o"
            flags = (*FLAGS, *ONCE) if file.stem.endswith("__Slow") else FLAGS
            verilator.run([compiler, *flags, *folders, "-c", str(file), "-o", str(target)])
            return str(target)

        objects = list(pool.map(compiled, files))
    library = folder / "rtl.so"
    verilator.run([compiler, "-shared", "-pthread", *objects, "-o", str(library)])
    return library
