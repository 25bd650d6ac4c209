"""One run of one target, under libFuzzer or atheris, which take the same arguments and say the same at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.targets import BUILD, ROOT, Target

MOST_BYTES = 2048
"""Of an input."""
HANG_S = 60
"""By the clock on the wall, so a fuzzer that gets little of a busy machine is not taken for one that hangs."""
MEMORY_MB = 2048
_ASAN = "malloc_context_size=1:quarantine_size_mb=16"
"""Stacks of allocations are what its memory and time go to; an input that breaks something is small enough without."""
TraceFunction = Callable[[FrameType, str, Any], Any]
_running: set[int] = set()
"""Processes that fuzz now."""
_STATISTIC = re.compile(r"^stat::(\w+):\s*(\d+)$", re.MULTILINE)
_COVERAGE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to. `finding` is the input that broke something."""

    target: str
    inputs: int
    seconds: int
    guided: bool
    """Whether inputs were changed in the direction of code not reached before."""
    edges: int
    """Of the code, that some input took; not known (0) where it was not guided."""
    kept: int
    """Inputs in the corpus, each of which reaches what no other does; not known (0) where it was not guided."""
    memory_mb: int
    cpu_seconds: float
    """The fuzzer's and the system's for it, with the seconds that it takes to begin."""
    finding: Path | None = None
    said: str = ""
    """The end of what it said, where something broke."""


def fuzz(target: Target, program: Path | None, *, runs: int, seconds: int, seed: int, guided: bool = True) -> Result:
    """Feeds a target so many inputs (0: no limit), or for so long (0: no limit). `program` is that of a native one,
    which is always guided."""
    corpus.plant(target, target.seeds())
    artifacts = BUILD / "findings" / target.name
    artifacts.mkdir(parents=True, exist_ok=True)
    before = set(artifacts.iterdir())
    options = [f"-runs={runs or -1}", f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={artifacts}/"]
    options += ["-print_final_stats=1", "-reload=0", "-entropic=0", *_limits()]  # entropy takes a fifth of the time
    command = [*_command(target, program, guided=guided), *options, str(target.found)]
    said, code, cpu_seconds = call(command)
    found = sorted(set(artifacts.iterdir()) - before)
    return result_of(target, said, code, cpu_seconds, found[0] if found else None, guided=guided or target.is_native)


def result_of(
    target: Target, said: str, code: int, cpu_seconds: float, finding: Path | None, *, guided: bool = True
) -> Result:
    """What libFuzzer's words and exit code come to; one that ends badly without an input to show has its corpus."""
    statistics = {name: int(value) for name, value in _STATISTIC.findall(said)}
    coverage = _COVERAGE.findall(said) or [("0", "0", "0")]
    inputs = statistics.get("number_of_executed_units", 0)
    speed = statistics.get("average_exec_per_sec", 0)
    ended_before_it_began = code == -signal.SIGUSR1
    broken = finding is not None or not (code == 0 or ended_before_it_began)
    return Result(
        target.name,
        inputs,
        round(inputs / speed) if speed else 0,
        guided,
        int(coverage[-1][0]),
        int(coverage[-1][2]),
        statistics.get("peak_rss_mb", 0),
        round(cpu_seconds, 1),
        (finding or target.found) if broken else None,
        said[-6000:] if broken else "",
    )


def replay(target: Target, program: Path | None, inputs: list[Path]) -> tuple[bool, str]:
    """Runs inputs once each, without fuzzing. Returns whether all went well, and what it said."""
    said, code, _ = call([*_command(target, program), *_limits(), *map(str, inputs)])
    return code == 0, said


def minimize(target: Target, program: Path | None, most: int) -> int:
    """Makes the checked-in corpus as small as covers what all inputs of this machine do, and of `most` inputs, the
    smallest, beside those with a name. Returns their number."""
    corpus.plant(target, target.seeds())
    choose = _by_lines if program is None else partial(_by_merging, program)
    named = {name: data for name, data in corpus.read(target).items() if name != corpus.name_of(data)}
    chosen = [data for path in sorted(choose(target), key=_size) if (data := path.read_bytes()) not in named.values()]
    found = {corpus.name_of(data): data for data in chosen[:most]}
    corpus.write(target, found | named)
    return len(found | named)


def keep(target: Target, inputs: list[Path]) -> None:
    """Adds inputs to the checked-in corpus under the names of their files."""
    corpus.write(target, corpus.read(target) | {path.name: path.read_bytes() for path in inputs})


def _size(path: Path) -> int:
    return path.stat().st_size


def _by_merging(program: Path, target: Target) -> list[Path]:
    """As libFuzzer chooses."""
    chosen = BUILD / "minimal" / target.name
    chosen.mkdir(parents=True, exist_ok=True)
    for old in chosen.iterdir():
        old.unlink()
    said, code, _ = call([str(program), "-merge=1", *_limits(), str(chosen), str(target.found)])
    if code:
        raise RuntimeError(f"{target.name}: the corpus cannot be merged\n{said[-3000:]}")
    return list(chosen.iterdir())


def _by_lines(target: Target) -> list[Path]:
    """Those that reach a line of softnic that no smaller one does; atheris cannot merge."""
    feed, chosen = target.feed(), list[Path]()
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if "/softnic" not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    feed(b"")
    for path in sorted(target.found.iterdir(), key=_size):
        before, data = len(seen), path.read_bytes()
        sys.settrace(trace)
        try:
            feed(data)
        finally:
            sys.settrace(None)
        if len(seen) > before:
            chosen.append(path)
    return chosen


def _limits() -> list[str]:
    limits = {"max_len": MOST_BYTES, "timeout": HANG_S, "report_slow_units": HANG_S, "rss_limit_mb": MEMORY_MB}
    return [f"-{name}={value}" for name, value in limits.items()]


def _command(target: Target, program: Path | None, *, guided: bool = True) -> list[str]:
    """What takes libFuzzer's arguments."""
    if program is not None:
        return [str(program)]
    return [sys.executable, "-m", "tests.fuzz.guided" if guided else "tests.fuzz.unguided", target.name]


def call(command: list[str]) -> tuple[str, int, float]:
    """What it says, its exit code, and CPU seconds."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "ASAN_OPTIONS": _ASAN, "UBSAN_OPTIONS": "print_stacktrace=1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a terminal's Ctrl-C ends this process, and that one as `stop` does
    )
    assert process.stdout is not None
    _running.add(process.pid)
    with process.stdout as output:
        said = output.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    _running.discard(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    return said, process.returncode, usage.ru_utime + usage.ru_stime


def stop() -> None:
    """Ends runs after the input that they are at; they say what they came to as at any other end."""
    for process in list(_running):
        os.kill(process, signal.SIGUSR1)
