"""Tables and lines in the width of a terminal: nothing that is shown is cut, and the most important stays longest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from softnic.commands.layout import ScreenColumn, fitted, pairs, terminal_width, whole_words, wrapped

Cells = tuple[str, ...]


def column(index: int, priority: int, heading: str, width: int = 0, left: bool = False) -> ScreenColumn[Cells]:
    return ScreenColumn(priority, heading, lambda row: row[index], width, left)


COLUMNS = [column(0, 3, "name", left=True), column(1, 1, "rate", width=6), column(2, 2, "loss")]
ROWS = [("a", "1.5 MB", "0.1"), ("longer", "", "12,345.0"), ("idle", "", "")]


@pytest.mark.parametrize(
    ("width", "lines", "left_out"),
    [
        (None, ["name      rate      loss", "a       1.5 MB       0.1", "longer          12,345.0", "idle"], []),
        (24, ["name      rate      loss", "a       1.5 MB       0.1", "longer          12,345.0", "idle"], []),
        (23, ["  rate      loss", "1.5 MB       0.1", "        12,345.0"], ["name"]),
        (16, ["  rate      loss", "1.5 MB       0.1", "        12,345.0"], ["name"]),
        (15, ["  rate", "1.5 MB"], ["loss", "name"]),
        (6, ["  rate", "1.5 MB"], ["loss", "name"]),
        (5, [], ["rate", "loss", "name"]),
    ],
)
def test_columns_are_left_out_by_priority(width: int | None, lines: list[str], left_out: list[str]) -> None:
    found = fitted(COLUMNS, ROWS, width)
    assert (found.lines, found.left_out) == (lines, left_out)


def test_a_least_width_keeps_the_columns_while_figures_change() -> None:
    short, long = (fitted(COLUMNS, [("a", rate, "0.1")], 12) for rate in ("0 B", "1.5 MB"))
    assert short.left_out == long.left_out == ["name"]
    assert short.lines[0] == long.lines[0] == "  rate  loss"


def test_a_table_without_rows_has_its_heading() -> None:
    assert fitted(COLUMNS, [], None).lines == ["name    rate  loss"]


words = st.text("ab1.", max_size=6)


@given(
    rows=st.lists(st.tuples(words, words, words, words), max_size=5),
    order=st.permutations(range(4)),
    least=st.lists(st.integers(0, 8), min_size=4, max_size=4),
    width=st.integers(0, 60),
)
def test_no_cell_is_ever_cut(rows: list[Cells], order: list[int], least: list[int], width: int) -> None:
    columns = [column(i, order[i], f"h{i}", least[i], left=i % 2 == 0) for i in range(4)]
    found, wider = fitted(columns, rows, width), fitted(columns, rows, width + 1)
    assert all(len(line) <= width for line in found.lines)
    shown = [each.heading for each in columns if each.heading not in found.left_out]
    assert {each.heading for each in columns} == {*shown, *found.left_out}
    assert found.left_out == [each.heading for each in sorted(columns, key=lambda c: c.priority)][len(shown) :]
    assert set(wider.left_out) <= set(found.left_out), "a wider terminal shows no less"
    expected = [[row[int(heading[1])] for heading in shown] for row in rows]
    assert [line.split() for line in found.lines[1:]] == [
        [cell for cell in cells if cell] for cells in expected if any(cells)
    ]


def test_names_and_figures_stand_side_by_side_where_they_fit() -> None:
    figures = [("tx_bytes", "1,234"), ("rx", "5")]
    assert pairs(figures, 15) == pairs(figures, None) == ["tx_bytes  1,234", "rx            5"]
    assert pairs(figures, 14) == ["tx_bytes", "  1,234", "rx", "  5"]
    assert pairs([], 10) == []


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("rank 0  sends 27.0 MB/s", None, ["rank 0  sends 27.0 MB/s"]),
        ("rank 0  sends 27.0 MB/s", 23, ["rank 0  sends 27.0 MB/s"]),
        ("rank 0  sends 27.0 MB/s", 22, ["rank 0  sends", "  27.0 MB/s"]),
        ("rank 0  sends 27.0 MB/s", 12, ["rank 0", "  sends", "  27.0 MB/s"]),
        ("waits for rank 1: 1.0 MB from it", 22, ["waits for rank 1:", "  1.0 MB from it"]),
        ("waits for rank 1: 1.0 MB from it", 20, ["waits for rank 1:", "  1.0 MB from it"]),
        ("silent for 5 s, then 3 samples", 16, ["silent for 5 s,", "  then 3 samples"]),
        ("10.77.0.1:29477 rank-0", 4, ["10.77.0.1:29477", "  rank-0"]),
    ],
)
def test_lines_break_between_words(text: str, width: int | None, lines: list[str]) -> None:
    assert wrapped(text, width) == lines


@given(st.lists(st.text("ab1-.", min_size=1, max_size=9), min_size=1, max_size=12), st.integers(3, 40))
def test_lines_have_every_word_whole(parts: list[str], width: int) -> None:
    lines = wrapped(" ".join(parts), width)
    assert " ".join(lines).split() == parts
    assert all(len(line) <= width or " " not in line.strip() for line in lines)


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("q quit  s sort", 14, "q quit  s sort"),
        ("q quit  s sort", 13, "q quit  s …"),
        ("q quit  s sort", 10, "q quit …"),
        ("q quit  s sort", 9, "q quit …"),
        ("q quit  s sort", 7, "q …"),
        ("1000000", 6, "…"),
        ("1000000", 1, "…"),
        ("1000000", 0, ""),
        ("", 0, ""),
    ],
)
def test_words_are_left_out_whole(text: str, width: int, shown: str) -> None:
    assert whole_words(text, width) == shown


@given(st.lists(st.text("a1", min_size=1, max_size=9), max_size=8), st.integers(0, 60))
def test_no_word_is_cut(parts: list[str], width: int) -> None:
    text = " ".join(parts)
    shown = whole_words(text, width)
    assert len(shown) <= width
    if shown != text:
        *kept, mark = shown.split() or ["…"]
        assert (kept, mark) == (parts[: len(kept)], "…")


def test_a_file_or_pipe_has_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    with Path(os.devnull).open("w") as null:
        assert terminal_width(Console(file=null)) is None
        assert terminal_width(Console(file=null, force_terminal=True, width=72)) == 72
        monkeypatch.setenv("COLUMNS", "40")
        assert terminal_width(Console(file=null)) == 40
