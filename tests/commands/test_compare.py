"""`softnic compare`: a table a model for people, JSON, CSV and a picture; mistakes are one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from softnic.commands import main
from softnic.experiments import photos
from softnic.experiments.compare import plan
from softnic.experiments.compare.plan import ComparisonPlan
from softnic.experiments.compare.results import TrainingResult, TrainingResults
from softnic.experiments.compare.training import Evaluation
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
    assert report["settings"]["link"] == {}
    assert said.startswith("transformer on text: 2 ranks x 2 samples, 2 steps")
    assert {path.name for path in out.iterdir()} == {
        *("summary.csv", "curves.csv", "transformer.png", "compare-transformer.json"),
    }


def test_missing_photographs_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none_installed(package: str) -> Path:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    wanted = ["compare", "--preset", "quick", "--model", "resnet", "--method", "exact"]
    monkeypatch.setattr(photos, "FILES", ("skimage/data/retina.jpg",))
    monkeypatch.setattr(photos, "files", none_installed)
    assert main(wanted) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"softnic compare: the module skimage is not installed: {sys.executable} -m pip install 'scikit-image>=0.22'"
    )
    monkeypatch.setattr(photos, "files", lambda package: tmp_path / package)
    assert main(wanted) == 1
    path = tmp_path / "skimage" / "data" / "retina.jpg"
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"softnic compare: {path}: the installed package lacks this photograph"
    )


def kept_results(directory: Path) -> list[str]:
    """Keep an exact training and one that sends less, and return the arguments for them."""
    (exact, small) = ComparisonPlan(("exact", "rht:4"), {"hdc": plan.FULL["hdc"]}).jobs()
    kept = TrainingResults(directory, {})
    for job, sent in ((exact, 80_000_000), (small, 10_000_000)):
        look = Evaluation(20, 1.0, 0.1, 0.9, 4 * sent, 2.0, 1.0, 8.0, host_s=1.0, link_bytes=sent, compute_s=0.01)
        kept.keep(job, TrainingResult("hdc", job.method, (look,), 3.0))
    return ["compare", "--advise", "--results", str(directory)]


def test_a_method_is_advised_from_own_results(softnic: Softnic, tmp_path: Path) -> None:
    arguments = kept_results(tmp_path)
    code, said, err = softnic(*arguments, "--model", "hdc", "--rate", "100mbit")
    assert code == 0, err
    lines = said.splitlines()
    assert lines[0] == "hdc over 100 Mbit/s: rht:4 is soonest"
    assert lines[1].startswith("- 1.8 s (1 seed) until the exact training's accuracy, within half a point")
    code, said, _ = softnic(*arguments, "--json", "-")
    assert code == 0
    assert [(each["rate_bps"], each["take"]) for each in json.loads(said)] == [
        (rate, "rht:4") for rate in (1e10, 1e9, 1e8, 1e7)
    ]


def test_an_unknown_model_is_advised_by_the_most_similar_one(softnic: Softnic, tmp_path: Path) -> None:
    arguments = kept_results(tmp_path)
    code, said, err = softnic(*arguments, "--parameters", "25000000", "--compute", "120ms", "--rate", "1gbit")
    assert code == 0, err
    assert said.startswith(
        "25,000,000 parameters and 120 ms of computation per step: the most similar model with results"
    )
    assert "hdc over 1 Gbit/s: rht:4 is soonest" in said
    for wrong, line in (
        (["--compute", "120ms"], "--compute needs --parameters"),
        (["--parameters", "1", "--model", "hdc"], "--parameters is for a model without results"),
    ):
        code, _, err = softnic(*arguments, *wrong)
        assert code == 1
        assert line in err.splitlines()[-1]


@pytest.mark.slow
def test_steps_are_measured_beside_their_computed_time(softnic: Softnic, tmp_path: Path) -> None:
    arguments = [
        *("compare", "--preset", "quick", "--check", "2", "--model", "convnet", "--rate", "100mbit"),
        *("--method", "exact", "--results", str(tmp_path), "--json", "-"),
    ]
    code, said, err = softnic(*arguments)
    assert code == 0, err
    (row,) = json.loads(said)["results"]
    assert (row["model"], row["method"], row["rate"]) == ("convnet", "exact", "100mbit")
    # Each of the two ranks sends 1.6 MB a step: 126 ms.
    assert row["measured_s"] > 0.12
    assert row["computed_s"] > 0.12
    again = softnic(*arguments)
    assert json.loads(again[1])["results"] == [row]


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
