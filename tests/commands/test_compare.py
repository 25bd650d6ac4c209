"""`softnic compare`: a table a model for people, JSON, CSV and a picture; mistakes are one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs

needs.module("torch")

Softnic = Callable[..., tuple[int, str, str]]


@pytest.mark.slow
def test_a_training_is_measured_and_drawn(softnic: Softnic, tmp_path: Path) -> None:
    needs.module("matplotlib")
    file, out, text = tmp_path / "compare.json", tmp_path / "out", tmp_path / "text"
    text.write_text("What is trained here is not meant to be learned. " * 60)
    code, said, err = softnic(
        *("compare", "--preset", "quick", "--model", "transformer", "--text", str(text), "--steps", "2"),
        *("--method", "bounded:10", "--out", str(out), "--json", str(file)),
    )
    assert code == 0, err
    report = json.loads(file.read_text())
    assert [row["method"] for row in report["results"]] == ["bounded:10"]
    assert report["settings"]["workers"] == 2
    assert report["settings"]["link"] == {"rate": "1gbit", "delay": "50us"}
    assert said.startswith("transformer on text: 2 ranks x 2 samples, 2 steps")
    assert {path.name for path in out.iterdir()} == {
        *("summary.csv", "curves.csv", "transformer.png", "transformer-bounded_10.json"),
    }


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--method", "zip:9"], 2, "'zip:9' is not a method"),
        (["--model", "vgg"], 2, "invalid choice: 'vgg'"),
        (["--model", "hdc", "--data", "/nowhere"], 1, "softnic compare: /nowhere: there is no such directory of IDX"),
        (["--model", "transformer", "--text", "/nowhere"], 1, "softnic compare: /nowhere: No such file or directory"),
        (["--json", "/nowhere/x"], 1, "softnic compare: /nowhere/x: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(softnic: Softnic, arguments: list[str], code: int, line: str) -> None:
    found, out, err = softnic("compare", *arguments)
    assert (found, out) == (code, "")
    assert line in err.splitlines()[-1]
