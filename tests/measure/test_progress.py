"""Rows of measurements arrive when they are measured, not at the end."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import harness
from softnic.bench import codec
from softnic.commands import main
from softnic.measure.progress import Measured, as_measured, inside, row_text, shown
from softnic.measure.report import MeasurementReport, column, columns

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Row:
    case: str = column("case")
    rate: float | None = column("MB/s", ".0f")
    why: str = column("", default="")


def report(progress: object, capsys: pytest.CaptureFixture[str], seen: list[str]) -> MeasurementReport[Row]:
    """Measures three rows, and notes what a person has seen before each."""

    def rows() -> Iterator[Row]:
        for number in range(3):
            seen.append(capsys.readouterr().err)
            progress(f"case {number}")  # type: ignore[operator]
            yield Row(f"case {number}", 100.0 * number)

    found = as_measured(rows(), columns(Row), progress)  # type: ignore[arg-type]
    return MeasurementReport("three", "Three rows", columns(Row), found, {})


@pytest.mark.parametrize("arguments", [[], ["--json", "-"], ["--markdown"]])
def test_a_benchmark_shows_each_row_before_the_next(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("sys.argv", ["three", *arguments])
    code = harness.main("three", "", lambda _given, progress: [report(progress, capsys, seen)], lambda _parser: None)
    out, err = capsys.readouterr()
    assert code == 0
    assert ["".join(seen).count(f"case {number}, MB/s") for number in range(3)] == [1, 1, 0]
    assert [f"case {number}" in text for number, text in enumerate(seen[1:])] == [True, True]
    assert "case 2, MB/s 200\n" in err
    if arguments == ["--json", "-"]:
        assert [row["rate"] for row in json.loads(out)["results"]] == [0, 100, 200]
    else:
        assert "case 1" in out


def test_bench_shows_each_row_before_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(codec, "run", lambda _settings, progress: report(progress, capsys, seen))
    assert main(["bench", "codec"]) == 0
    assert seen[1].endswith("case 0, MB/s 0\n")
    assert seen[2].endswith("case 1, MB/s 100\n")
    assert "Three rows" in capsys.readouterr().out


def test_a_benchmark_whose_file_cannot_be_written_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["three", "--json", "/nowhere/x.json"])
    assert harness.main("three", "", lambda *_: pytest.fail("measured"), lambda _parser: None) == 1
    assert capsys.readouterr().err == "benchmarks.three: /nowhere/x.json: No such file or directory\n"


def test_where_there_is_no_terminal_long_work_says_what_it_does() -> None:
    now = [0.0]
    out = io.StringIO()
    with shown(Console(file=out), lambda: now[0]) as progress:
        for at, what in ((1, "one"), (9, "two"), (10, "three"), (12, "four"), (19, "five")):
            now[0] = at
            progress(what)
        progress(Measured("row, MB/s 7"))
        for at, what in ((28, "six"), (29, "seven")):
            now[0] = at
            progress(what)
    assert out.getvalue().splitlines() == ["measuring three", "row, MB/s 7", "measuring seven"]


def test_in_a_terminal_rows_stay_above_what_is_measured() -> None:
    out = io.StringIO()
    with shown(Console(file=out, force_terminal=True, width=80, markup=False), lambda: 1e9) as progress:
        progress("one of [/data]")
        progress(Measured("[row] 7"))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert "[row] 7\n" in text
    assert "measuring one of [/data]" in text


def test_the_text_of_a_row() -> None:
    assert row_text(columns(Row), Row("softnic", 812.4)) == "softnic, MB/s 812"
    assert row_text(columns(Row), Row("pasta", None, "not installed")) == "pasta, not installed"


def test_a_part_says_which_one_it_is() -> None:
    told: list[str] = []
    part = inside(told.append, "4 KB")
    part("ring")
    part(Measured("ring, 1 ms"))
    assert told == ["4 KB: ring", "4 KB: ring, 1 ms"]
    assert [isinstance(each, Measured) for each in told] == [False, True]


def test_every_benchmark_reports_its_rows() -> None:
    """What makes a report reports each of its rows, or each round of its cases, when it is measured."""
    sources = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "softnic" / "bench").glob("*.py")]
    makers = [path for path in sources if re.search(r"Report\(\s", path.read_text()) or 'Report("' in path.read_text()]
    silent = [
        str(path.relative_to(ROOT))
        for path in makers
        if not re.search(r"\b(as_measured|Measured|inside)\(", path.read_text()) and path.parent.name != "papers"
    ]
    assert silent == ["benchmarks/peers/__main__.py"], "its rows are made in streams.py and collectives.py"
    assert len(makers) > 25
