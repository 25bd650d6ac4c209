"""The engines as a shared library, made when it is first needed and kept under `XDG_CACHE_HOME` (or ~/.cache).

The library's name has a hash of all that it is made from: sources, Verilator, compiler. Processes that need it at the
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
from pathlib import Path

from softnic.rtl import verilator
from softnic.rtl.verilator import RtlError

FLAGS = ("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-w")
_PLACES = (Path(__file__).parent / "verilog", Path(__file__).parents[2] / "native" / "rtl")
"""Where the sources are in an installation, and in a checkout."""
_KERNELS = re.compile(r"^KERNELS\((\w+), \d+\)$", re.MULTILINE)
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp")


def sources() -> Path:
    """Return the folder of the engines."""
    for place in _PLACES:
        if (place / "driver.cpp").exists():
            return place
    raise RtlError(f"the engines' sources are not in {_PLACES[0]}: install softnic anew")


def codecs() -> tuple[str, ...]:
    """Return the names of the codecs that have an encoder and a decoder, as the driver lists them."""
    return tuple(_KERNELS.findall((sources() / "driver.cpp").read_text()))


def path() -> Path:
    """Return the library's path; make it if it does not exist. Raises RtlError if it cannot be made."""
    if reason := verilator.missing():
        raise RtlError(reason)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "softnic"
    library = cache / f"rtl-{_digest()}.so"
    if library.exists():
        return library
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "rtl.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                with tempfile.TemporaryDirectory(dir=cache) as folder:
                    _make(Path(folder)).replace(library)
    except OSError as error:
        raise RtlError(f"the library of the RTL engines cannot be kept: {error}") from None
    return library


def _digest() -> str:
    found = hashlib.sha256()
    compiler = verilator.compiler() or ""
    said = verilator.run([compiler, "--version"])
    for text in (verilator.version(), compiler, said, platform.machine(), *FLAGS, *verilator.OPTIONS):
        found.update(text.encode() + b"\0")
    for source in sorted(sources().iterdir()):
        if source.suffix in (".sv", ".cpp"):
            found.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _make(folder: Path) -> Path:
    compiler = verilator.compiler() or ""
    include = verilator.include()
    tops = [f"{codec}_{side}" for codec in codecs() for side in ("encoder", "decoder")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        models = list(pool.map(lambda top: verilator.translate(top, sources(), folder / top), tops))
        files = [sources() / "driver.cpp", *(include / name for name in _RUNTIME), *itertools.chain(*models)]
        folders = [f"-I{place}" for place in (include, include / "vltstd", *(folder / top for top in tops))]

        def compiled(file: Path) -> str:
            target = folder / f"{file.stem}.o"
            verilator.run([compiler, *FLAGS, *folders, "-c", str(file), "-o", str(target)])
            return str(target)

        objects = list(pool.map(compiled, files))
    library = folder / "rtl.so"
    verilator.run([compiler, "-shared", "-pthread", *objects, "-o", str(library)])
    return library
