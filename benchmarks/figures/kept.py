"""A figure: the command that measures it, the result that is kept of it, and how far its code has changed since.

What is kept is the document that the command writes with `--json`, one file of docs/results a figure, behind the
command, the version with its commit, the time, the load (how many other processes ran before it began) and the rooms:
the directories and files whose change may change the figure. The rows of a figure that was measured beside others have
the load.

A figure is stale when of its rooms' lines more than `STALE` have been changed, added or removed since. Each commit
changes some, so a figure is not stale after the first, and a room that is rewritten makes its figures stale.
"""

from __future__ import annotations

import datetime
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softnic.measure import kept

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
STALE = 0.1
"""Share of the lines of a figure's rooms."""
BUSY = 0.5
"""Other processes that run, on average: with more, a figure's rows have the load."""
SAMPLES, SAMPLE_S = 40, 0.05
"""How often their number is read, and at what distance."""
LIMIT_S = 3600.0
"""Of one command."""
Rows = Sequence[Mapping[str, Any]]


class FigureError(Exception):
    """A figure cannot be measured, or its result lacks what a page says of it. The message is one line."""


@dataclass(frozen=True)
class Cells:
    """A row of a page's table."""

    what: str
    figure: str
    beside: str
    """The limit or the peer in the same run."""


@dataclass(frozen=True)
class Figure:
    """What one command measures, and the rows of a page that come from it."""

    name: str
    """Of its file: performance-latency for docs/results/performance-latency.json."""
    command: str
    """As users write it, without --json."""
    rooms: tuple[str, ...]
    """Paths in the checkout."""
    cells: Callable[[Rows], Sequence[Cells]]
    """Makes the rows of the page from those of the result. Raises FigureError if one is missing."""

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.name}.json"

    def document(self) -> dict[str, Any]:
        """Return the kept result. Raises FigureError if there is none."""
        try:
            document: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FigureError(f"{self.name} was never measured: {self.again}") from None
        return document

    def rows(self) -> list[list[str]]:
        """Return the rows of the page, with the command and the commit. Raises FigureError."""
        document = self.document()
        commit, command = commit_of(document), f"`{self.command}`"
        if (load := document.get("load", 0.0)) > BUSY:
            commit += f", load {load:.0f}"
        return [[row.what, row.figure, row.beside, command, commit] for row in self.cells(document["results"])]

    @property
    def again(self) -> str:
        """The command that measures the figure again, in words."""
        return f"measure it with `python -m benchmarks.figures {self.name}`"


def row(results: Rows, **wanted: Any) -> Mapping[str, Any]:
    """Return the first row that has these values, and a figure. Raises FigureError."""
    for each in results:
        if all(each[name] == value for name, value in wanted.items()):
            if each.get("why"):
                raise FigureError(f"{' '.join(map(str, wanted.values()))}: {each['why']}")
            return each
    raise FigureError(f"the result has no row for {' '.join(map(str, wanted.values()))}")


def commit_of(document: Mapping[str, Any]) -> str:
    """Return the commit that was measured."""
    return str(document["softnic"]).partition("+")[2]


def others_running() -> float:
    """Return how many other processes run at this moment, as the mean of some seconds."""
    found = []
    for _ in range(SAMPLES):
        time.sleep(SAMPLE_S)
        running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
        found.append(int(running) - 1)
    return sum(found) / len(found)


def measure(figure: Figure) -> None:
    """Run the command of a figure and keep its result. Its progress goes to standard error.

    Raises
    ------
    FigureError
        If the rooms have changes without a commit, or the command fails, or its result lacks a row of the page. What
        was kept stays then.
    """
    if changes := _git("status", "--porcelain", "--", *figure.rooms):
        raise FigureError(f"{figure.name}: commit the changes of its code first: {' '.join(changes.split())}")
    version, load = kept.version(), others_running()
    words = shlex.split(figure.command)
    argv = words[1:] if words[0] == "python" else ["-m", *words]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "result.json"
        try:
            code = subprocess.run(
                [sys.executable, *argv, "--json", str(file)], cwd=ROOT, stdout=sys.stderr, timeout=LIMIT_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            raise FigureError(f"{figure.name} took over {LIMIT_S:.0f} s") from None
        if code:
            raise FigureError(f"{figure.name}: exit code {code}")
        made: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    figure.cells(made["results"])
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
    head = {
        "softnic": version,
        "command": figure.command,
        "date": now,
        "load": load,
        "rooms": list(figure.rooms),
    }
    document = kept.plain({**head, **{name: value for name, value in made.items() if name not in head}})
    part = figure.path.with_suffix(".part")
    part.write_text(kept.text(document) + "\n", encoding="utf-8")
    part.replace(figure.path)


@dataclass(frozen=True)
class Change:
    """What has changed of the rooms of a figure since it was measured."""

    commits: int
    lines: int
    """Changed, added or removed."""
    of: int
    """Lines that the rooms have."""

    @property
    def share(self) -> float:
        return self.lines / max(self.of, 1)

    @property
    def stale(self) -> bool:
        return self.share > STALE


def has_history() -> bool:
    """Return whether this is a checkout with all its history."""
    return _git("rev-parse", "--is-shallow-repository").strip() == "false"


def changed(figure: Figure) -> Change:
    """Return what has changed since a figure was measured, uncommitted changes included.

    What counts are files that were there then: a new one counts by the lines of others that use it.

    A commit that this history lacks, as after a rebase, stands for the last one before the time of the measurement.

    Raises
    ------
    FigureError
        If the figure was never measured, or nothing in this history is as old.
    """
    document = figure.document()
    since = commit_of(document)
    if not _git("cat-file", "-t", since):
        since = _git("rev-list", "-1", f"--before={document['date']}", "HEAD").strip() if "date" in document else ""
    if not since:
        raise FigureError(f"{figure.name} is of a commit that this history lacks: {figure.again}")
    commits = int(_git("rev-list", "--count", f"{since}..HEAD", "--", *figure.rooms))
    lines = sum(map(_lines, _git("diff", "--numstat", "--diff-filter=a", since, "--", *figure.rooms).splitlines()))
    names = _git("ls-tree", "-rz", "--name-only", since, "--", *figure.rooms).split("\0")
    files = [ROOT / name for name in names if name and (ROOT / name).exists()]
    return Change(commits, lines, sum(len(file.read_bytes().splitlines()) for file in files))


def _lines(numstat: str) -> int:
    """Return the lines of a file that were changed: added or removed, whichever is more. 0 for binary files."""
    added, removed, _name = numstat.split("\t")
    return 0 if added == "-" else max(int(added), int(removed))


def _git(*arguments: str) -> str:
    """Return what git prints; nothing if it fails, or there is none."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
