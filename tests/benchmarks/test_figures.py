"""Figures of the documentation: the pages are those of the kept results, and figures of other code are found."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.figures import kept, published
from benchmarks.figures.kept import Cells, Figure, FigureError, Rows, changed, has_history, measure

FIGURES = [figure for figures in published.PUBLISHED.values() for figure in figures]
QUICK = "python -m benchmarks.errors --ranks 3 --count 1000 --codec exact"
Git = Callable[..., str]


def first_row(results: Rows) -> list[Cells]:
    return [Cells("errors", f"{kept.row(results, ranks=3)['codec']}", "")]


FIGURE = Figure("performance-test", QUICK, ("room",), first_row)


@pytest.mark.parametrize("page", published.PUBLISHED)
def test_the_table_of_a_page_is_made_of_kept_results(page: str) -> None:
    again = "run `python -m benchmarks.figures --report`"
    assert published.page_path(page).read_text() == published.rebuilt_page(page), again


@pytest.mark.parametrize("page", published.PUBLISHED)
def test_a_page_has_no_measured_figure_outside_its_table(page: str) -> None:
    text = re.sub(
        r"<!-- results: .*?<!-- end -->|```.*?```", "", published.page_path(page).read_text(), flags=re.DOTALL
    )
    measured = r"\d[\d.]* (?:times|GB/s|MB/s|KiB established)|\d[\d.]* %? of the (?:link|kernel)|commit [0-9a-f]{8}"
    assert re.findall(measured, text) == []


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_has_what_it_was_made_of(figure: Figure) -> None:
    document = figure.document()
    assert {"softnic", "command", "date", "load", "rooms", "machine"} <= set(document)
    assert document["command"] == figure.command, figure.again
    assert document["rooms"] == list(figure.rooms), figure.again
    assert kept.commit_of(document)
    assert [room for room in figure.rooms if not (kept.ROOT / room).exists()] == []


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_code_of_a_figure_has_changed_little_since(figure: Figure) -> None:
    if not has_history():
        pytest.skip("no git history: the code that was measured is not known")
    change = changed(figure)
    assert not change.stale, f"{change.share:.0%} of its code has changed since: {figure.again}"


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """A repository with a room of 100 lines, in place of the checkout."""

    def run(*arguments: str) -> str:
        who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        run("init", "-q")
    except FileNotFoundError:
        pytest.skip("not installed: git")
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "code.c").write_text("".join(f"{number}\n" for number in range(100)))
    run("add", "room")
    run("commit", "-qm", "first")
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    monkeypatch.setattr(kept, "RESULTS", tmp_path)
    return run


def measured_at(commit: str, **more: str) -> None:
    FIGURE.path.write_text(json.dumps({"softnic": f"0.1.0+{commit}", "results": [], **more}))


def change_lines(git: Git, count: int) -> None:
    lines = [f"{'changed' if number < count else number}\n" for number in range(100)]
    (kept.ROOT / "room" / "code.c").write_text("".join(lines))
    git("commit", "-qam", "a change")


def test_a_figure_is_stale_once_a_tenth_of_its_rooms_has_changed(git: Git) -> None:
    measured_at(git("rev-parse", "--short", "HEAD"))
    assert changed(FIGURE) == kept.Change(0, 0, 100)
    change_lines(git, 10)
    (kept.ROOT / "other").write_text("elsewhere\n" * 100)
    git("add", "other")
    git("commit", "-qm", "elsewhere")
    assert changed(FIGURE) == kept.Change(1, 10, 100)
    assert not changed(FIGURE).stale
    change_lines(git, 11)
    assert changed(FIGURE) == kept.Change(2, 11, 100)
    assert changed(FIGURE).stale


def test_a_change_without_a_commit_counts(git: Git) -> None:
    measured_at(git("rev-parse", "--short", "HEAD"))
    (kept.ROOT / "room" / "code.c").write_text("")
    assert changed(FIGURE).stale


def test_a_commit_that_a_rebase_has_replaced_is_found_by_its_time(git: Git) -> None:
    change_lines(git, 50)
    measured_at("0123456", date="2098-01-01T00:00+00:00")
    assert changed(FIGURE) == kept.Change(0, 0, 100)
    for more in ({}, {"date": "1999-01-01T00:00+00:00"}):
        measured_at("0123456", **more)
        with pytest.raises(FigureError, match="a commit that this history lacks"):
            changed(FIGURE)


def test_a_figure_without_a_result_says_how_to_measure_it(git: Git) -> None:  # noqa: ARG001
    with pytest.raises(FigureError, match=re.escape("`python -m benchmarks.figures performance-test`")):
        FIGURE.rows()


def test_changes_without_a_commit_are_not_measured(git: Git) -> None:
    (kept.ROOT / "room" / "code.c").write_text("")
    with pytest.raises(FigureError, match=r"commit the changes of its code first: M room/code\.c"):
        measure(FIGURE)
    git("commit", "-qam", "a change")


def test_a_measured_figure_is_kept_with_what_it_was_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "RESULTS", tmp_path)
    monkeypatch.setattr(kept, "SAMPLE_S", 0.0)
    figure = replace(FIGURE, rooms=("LICENSE",))
    measure(figure)
    document = figure.document()
    assert (document["command"], document["rooms"]) == (QUICK, ["LICENSE"])
    assert len(document["results"]) == 5
    commit = kept.commit_of(document)
    for load, said in ((0.5, commit), (6.8, f"{commit}, load 7")):
        figure.path.write_text(json.dumps({**document, "load": load}))
        assert figure.rows() == [["errors", "exact", "", f"`{QUICK}`", said]]
    before = figure.path.read_text()
    for command in (f"{QUICK} --no-such-flag", QUICK.replace("3", "4")):
        with pytest.raises(FigureError):
            measure(replace(figure, command=command))
        assert figure.path.read_text() == before, "what was kept stays"


def test_a_row_that_failed_is_no_figure() -> None:
    with pytest.raises(FigureError, match=r"softnic: not installed: torch"):
        kept.row([{"who": "softnic", "why": "not installed: torch"}], who="softnic")
    with pytest.raises(FigureError, match="no row for gloo"):
        kept.row([], who="gloo")
