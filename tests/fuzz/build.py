"""Builds native/ and its targets with clang: libFuzzer, AddressSanitizer and UBSan. Only what changed is compiled.

Sources are those that pyproject.toml gives to setuptools, so a new C file is fuzzed without a word here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.targets import BUILD, HERE, ROOT, Target
from tests.library import SOURCES

SANITIZERS = "address,undefined"
FLAGS = (
    *("-O2", "-g", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-fno-omit-frame-pointer"),
    "-fno-sanitize-recover=undefined",
    # Codecs compare numbers word by word; tracing that takes half of the time and finds nothing more.
    "-fno-sanitize-coverage=trace-cmp",
    "-Wno-pass-failed",  # loops that are asked to be vectorised are not, under sanitizers
    *(f"-I{ROOT / 'native'}", f"-I{HERE / 'native'}"),
)


class BuildError(Exception):
    """The text says what to do about it, or what the compiler said."""


def compiler() -> str:
    """The path of clang. Raises BuildError."""
    found = shutil.which("clang")
    if found is None:
        raise BuildError("targets of the C need clang and its runtimes: apt-get install clang libclang-rt-dev")
    return found


def build(targets: Iterable[Target]) -> dict[str, Path]:
    """The programs of native targets, by name. Raises BuildError."""
    clang = compiler()
    objects = BUILD / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    shared = [Path(__file__), *(path for place in (ROOT, HERE) for path in (place / "native").rglob("*.h"))]
    newest_shared = max(path.stat().st_mtime for path in shared)
    library = {source: objects / f"{source.stem}.o" for source in SOURCES}
    programs = {target.name: (target, BUILD / f"fuzz-{target.name}") for target in targets}
    flags = (*FLAGS, f"-fsanitize=fuzzer-no-link,{SANITIZERS}", "-c")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = [
            pool.submit(_run, clang, *flags, str(source), "-o", str(out))
            for source, out in library.items()
            if not _is_fresh(out, [source.stat().st_mtime, newest_shared])
        ]
        for one in compiled:
            one.result()
        newest = max(newest_shared, *(out.stat().st_mtime for out in library.values()))
        linked = [
            pool.submit(_link, clang, target, program, library)
            for target, program in programs.values()
            if not _is_fresh(program, [target.source.stat().st_mtime, newest])
        ]
        for one in linked:
            one.result()
    return {name: program for name, (_, program) in programs.items()}


def _is_fresh(path: Path, times: list[float]) -> bool:
    return path.exists() and path.stat().st_mtime >= max(times)


def _link(clang: str, target: Target, program: Path, library: dict[Path, Path]) -> None:
    """A target may include a file of native/ to look into it; then it stands for that file."""
    text = target.source.read_text()
    objects = [str(out) for source, out in library.items() if f'"{source.parent.name}/{source.name}"' not in text]
    codec = [f"-DFUZZ_CODEC={target.codec}"] if target.codec is not None else []
    flags = (*FLAGS, *codec, f"-fsanitize=fuzzer,{SANITIZERS}")
    _run(clang, *flags, str(target.source), *objects, "-lm", "-o", str(program))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stderr.strip()[:3000]}")
