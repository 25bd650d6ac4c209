"""`softnic train`: a table and bars for people, JSON for programs, a picture; mistakes are one line."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from softnic.experiments.train import chart
from softnic.experiments.train.chart import legend, lengths, show
from softnic.experiments.train.strategies_compared import StrategyRow
from tests import needs

Softnic = Callable[..., tuple[int, str, str]]

SMALL = ("train", "-n", "2", "--model", "mlp:3x32", "--batch", "8", "--steps", "2", "--warm-up", "1")


@pytest.mark.slow
def test_strategies_are_compared_and_drawn(softnic: Softnic, tmp_path: Path) -> None:
    needs.module("matplotlib")
    file, picture = tmp_path / "train.json", tmp_path / "train.png"
    code, out, err = softnic(
        *(*SMALL, "--strategy", "wa", "--strategy", "host-overlapped+bfp:7", "--in-flight", "1"),
        *("--json", str(file), "--picture", str(picture)),
    )
    assert code == 0, err
    report = json.loads(file.read_text())
    assert [row["name"] for row in report["results"]] == ["wa", "host-overlapped+bfp:7"]
    assert report["settings"]["link"] == {"rate": "1gbit", "delay": "50us"}
    assert report["settings"]["data"] == "synthetic"
    for row in report["results"]:
        assert 0 < row["exchange_s"] < row["iteration_s"]
        assert 0 < row["forward_s"] < row["iteration_s"]
    assert {name: len(ranks) for name, ranks in report["traces"].items()} == {"wa": 3, "host-overlapped+bfp:7": 2}
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = [line.split() for line in out.splitlines()]
    assert [row[0] for row in rows if row[:1] in (["wa"], ["host-overlapped+bfp:7"])] == [
        "wa",
        "host-overlapped+bfp:7",
    ] * 2
    assert "f forward" in out


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--strategy", "ring"], 2, "'ring' is not a strategy"),
        (["--strategy", "inc+zip:9"], 2, "zip"),
        (["--model", "resnet"], 2, "'resnet' is not a model"),
        (["--data", "/nowhere"], 1, "softnic train: /nowhere: there is no such directory of IDX files"),
        (["--picture", "/nowhere/x.png"], 1, "softnic train: /nowhere/x.png: No such file or directory"),
        (["--batch", "400"], 1, "softnic train: a batch of 400: each of 4 ranks has 359 samples of digits"),
    ],
)
def test_a_mistake_is_one_line(softnic: Softnic, arguments: list[str], code: int, line: str) -> None:
    found, out, err = softnic("train", *arguments)
    assert (found, out) == (code, "")
    assert line in err.splitlines()[-1]


PARTS = {"forward_s": 1, "backward_s": 2, "exchange_s": 4, "sum_s": 0, "update_s": 1, "skew_s": 2}
FIGURES: dict[str, Any] = {each.name: 0 for each in fields(StrategyRow)} | PARTS
ROW = StrategyRow(**{**FIGURES, "name": "inc", "iteration_s": 10})


def test_a_bar_is_as_long_as_its_parts() -> None:
    assert lengths(ROW, 10) == [6, 12, 24, 0, 6, 12]
    assert sum(lengths(replace(ROW, forward_s=1 / 3, update_s=5 / 3), 20)) == 30


def test_every_colour_of_the_picture_is_in_its_legend() -> None:
    assert set(legend().values()) == {*chart._COLORS.values(), *(part.color for part in chart.PARTS), chart._IN_FLIGHT}
    assert legend()["posting"] == "black"


def test_bars_share_a_scale() -> None:
    out = io.StringIO()
    show([ROW, replace(ROW, name="nic", exchange_s=1)], Console(file=out, width=100))
    first, second, _legend = out.getvalue().splitlines()
    assert first == " inc  " + "f" * 6 + "b" * 12 + "x" * 24 + "u" * 6 + "." * 12
    assert second == " nic  " + "f" * 6 + "b" * 12 + "x" * 6 + "u" * 6 + "." * 12
