"""Result files, figures over seeds and generated regions of pages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from softnic.measure.kept import InUseError, ResultFile, alone, plain, text, version
from softnic.measure.pages import PageError, rebuilt, regions, table
from softnic.measure.spread import Spread


@dataclass(frozen=True)
class Outcome:
    accuracy: float
    curve: tuple[float, ...] = ()
    lost: float | None = None


class Measured:
    """Something to measure, and how often it was."""

    def __init__(self, value: Outcome) -> None:
        self.value = value
        self.calls = 0

    def __call__(self) -> Outcome:
        self.calls += 1
        return self.value


def test_a_unit_is_measured_once_by_all_runs_with_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "results" / "fig.json"
    measure = Measured(Outcome(0.1234567891, (1.0, 2.0)))
    first = ResultFile(path).once("seed 1", {"steps": 5}, measure, Outcome)
    assert first == Outcome(0.123457, (1.0, 2.0))
    assert ResultFile(path).once("seed 1", {"steps": 5}, measure, Outcome) == first
    assert measure.calls == 1
    ResultFile(path).once("seed 1", {"steps": 6}, measure, Outcome)
    ResultFile(path).once("seed 2", {"steps": 6}, measure, Outcome)
    ResultFile(path, again=True).once("seed 2", {"steps": 6}, measure, Outcome)
    assert measure.calls == 4


def test_units_survive_an_interruption_between_them(tmp_path: Path) -> None:
    path = tmp_path / "fig.json"
    measure = Measured(Outcome(0.5))

    def interrupted() -> Outcome:
        raise KeyboardInterrupt

    run = ResultFile(path)
    run.once("a", {}, measure, Outcome)
    with pytest.raises(KeyboardInterrupt):
        run.once("b", {}, interrupted, Outcome)
    again = ResultFile(path)
    again.once("a", {}, measure, Outcome)
    again.once("b", {}, measure, Outcome)
    assert measure.calls == 2
    assert sorted(json.loads(path.read_text())["units"]) == ["a", "b"]


def test_a_result_is_that_of_a_run_that_was_asked_for_the_same(tmp_path: Path) -> None:
    path = tmp_path / "fig.json"
    ResultFile(path).finish({"models": ("hdc",)}, {"title": "t", "ratio": 1 / 3})
    assert ResultFile(path).result({"models": ["hdc"]}) == {"title": "t", "ratio": 0.333333}
    assert ResultFile(path).result({"models": ["alexnet"]}) is None
    assert ResultFile(path, again=True).result({"models": ["hdc"]}) is None
    assert json.loads(path.read_text())["softnic"] == version()


def test_a_result_replaces_the_units_that_it_is_made_of(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "fig.json")
    file.once("a", {}, Measured(Outcome(0.5)), Outcome)
    assert file.finish({}, {"mean": 0.5}) == {"mean": 0.5}
    assert ResultFile(tmp_path / "fig.json").find("a", {}, Outcome) is None


@pytest.mark.parametrize("content", ["", "{", "[1]", "null"])
def test_a_file_that_holds_no_results_is_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "fig.json"
    path.write_text(content)
    assert ResultFile(path).once("a", {}, Measured(Outcome(0.5)), Outcome) == Outcome(0.5)
    assert json.loads(path.read_text())["units"]["a"]["value"]["accuracy"] == 0.5


def test_without_a_path_a_unit_is_kept_in_memory() -> None:
    file, measure = ResultFile(None), Measured(Outcome(0.5))
    assert [file.once("a", {}, measure, Outcome) for _ in range(2)] == [Outcome(0.5)] * 2
    assert measure.calls == 1


def test_values_that_json_lacks_become_null() -> None:
    assert plain(Outcome(0.5, (float("nan"), 1.0), float("inf"))) == {
        "accuracy": 0.5,
        "curve": [None, 1.0],
        "lost": None,
    }


def test_files_are_json_with_a_line_for_each_row_and_each_sentence() -> None:
    rows = [["name", *range(60)], [None, *range(60)]]
    content = {"rows": rows, "settings": {"a": 1, "b": "ä" * 150}, "b": {"c": ["ä" * 30] * 5, "d": 1.5, "e": []}}
    assert json.loads(text(content)) == content
    lines = [line.strip(" ,") for line in text(content).splitlines()]
    assert [json.dumps(row) for row in rows] == lines[2:4]
    assert f'"settings": {{"a": 1, "b": "{"ä" * 150}"}}' in lines
    assert lines.count(f'"{"ä" * 30}"') == 5
    assert '"e": []' in lines


def test_a_directory_has_one_run_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(InUseError, match="in use by another run")
    with alone(tmp_path / "results"), refused, alone(tmp_path / "results"):
        pytest.fail("two runs hold one directory")
    with alone(tmp_path / "results"):
        pass


def test_mean_and_spread_of_seeds() -> None:
    own = Spread([0.97, 0.98, 0.99])
    assert own.mean == pytest.approx(0.98)
    assert own.deviation == pytest.approx(0.01)
    assert own.text(".1f", 100) == "98.0 ± 1.0"
    assert Spread([0.5]).text() == "0.50"
    assert Spread([0.5]).deviation == 0
    assert own.less(Spread([0.96, 0.98, 1.0])).values == pytest.approx([0.01, 0, -0.01])


PAGE = "# Title\n\n<!-- results: one -->\n\nold\n\n<!-- end -->\n\nbetween\n\n<!-- results: two-b -->\n<!-- end -->\n"


def test_regions_of_a_page_are_replaced() -> None:
    assert regions(PAGE) == ["one", "two-b"]
    page = rebuilt(PAGE, {"one": "new \\1", "two-b": "text\n"})
    assert page == (
        "# Title\n\n<!-- results: one -->\n\nnew \\1\n\n<!-- end -->\n\nbetween\n\n"
        "<!-- results: two-b -->\n\ntext\n\n<!-- end -->\n"
    )
    assert rebuilt(page, {"one": "new \\1", "two-b": "text\n"}) == page


def test_regions_without_results_and_results_without_regions_are_refused() -> None:
    with pytest.raises(PageError, match=re.escape("no results for two-b; no region three in the page")):
        rebuilt(PAGE, {"one": "new", "three": "new"})


def test_a_table_in_markdown() -> None:
    assert table(["a", "b"], [["1", "x|y"]]) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |"
