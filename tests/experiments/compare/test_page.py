"""The page of published comparisons, generated from kept results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from softnic.commands import main
from softnic.experiments.compare import advice, overview, page, plan
from softnic.experiments.compare.results import TrainingResult, TrainingResults
from softnic.measure.kept import ResultFile
from tests import needs
from tests.experiments.compare.test_summary import EXACT, FP16, SMALL, WORSE, training

torch = needs.module("torch")

TIMES = "| `hdc` | 100 Mbit/s | `rht:4` | 5.6 | 1 | `fp16`, 8.3 s | 1.50 |"
SVG = "{http://www.w3.org/2000/svg}"
FEEDBACK = training("feedback:rht:3", (0.5, 0.899), 9.0, 9_000_000)


def keep(directory: Path, *results: TrainingResult) -> None:
    kept = TrainingResults(directory, {})
    for result in results:
        (job,) = plan.ComparisonPlan((result.method,), {"hdc": plan.FULL["hdc"]}, seeds=(result.seed,)).jobs()
        kept.keep(job, result)


def test_regions_say_what_to_take_and_where_softnic_loses(tmp_path: Path) -> None:
    keep(tmp_path, EXACT, FP16, SMALL, WORSE, FEEDBACK)
    made = page.regions(tmp_path)
    assert "| `hdc` | scikit-learn's digits | 1500 steps of 4 x 25 | 5 of 78 | 0 of 26 | 0 min |" in made["compare-run"]
    assert TIMES in made["compare-advice"]
    assert made["compare-headline"].splitlines()[0] == "| links | 10 Gbit/s | 1 Gbit/s | 100 Mbit/s | 10 Mbit/s |"
    assert "| times as soon: `hdc` | 0.51 to 0.51 |" in made["compare-headline"]
    lost = made["compare-losses"].splitlines()
    assert lost[0] == "- `hdc` at 10 Gbit/s: `fp16` is first; softnic's best, `rht:4`, takes 1.95 times as long."
    assert lost[-1] == "- `hdc`: these do not reach the score: `scalecom:0.01` (-10.00 points)."
    assert not any("100 Mbit/s" in line for line in lost)
    assert "| `hdc` | `feedback:rht:3` | -0.10 points | 8.9 | 1 | yes |" in made["compare-feedback"]
    assert "| rht:4 | 90.00 % | +0.00 points | 8.0 | 8.0 | 1 |" in made["compare-tables"]
    headings = [line for line in made["compare-tables"].splitlines() if line.startswith("| method |")]
    assert headings[1] == "| method | 10 Gbit/s | 1 Gbit/s | 100 Mbit/s | 10 Mbit/s |"
    assert all(heading.count("|") <= 7 for heading in headings), "wider than a screen"


def test_longer_trainings_stand_beside_the_usual_ones_of_the_same_seeds(tmp_path: Path) -> None:
    keep(tmp_path, EXACT, replace(EXACT, seed=8, evaluations=WORSE.evaluations), SMALL)
    assert page.regions(tmp_path)["compare-longer"] == "No results yet."
    better = training("exact", (0.5, 0.91), 1.0, 80_000_000)
    (job,) = plan.ComparisonPlan(("exact",), {"hdc": replace(plan.FULL["hdc"], steps=3000)}).jobs()
    TrainingResults(tmp_path / page.LONGER, {}).keep(job, better)
    made = page.regions(tmp_path)
    assert made["compare-longer"].splitlines()[2:] == ["| `hdc` | 1500 | 90.00 % | 3000 | 91.00 % | +1.00 points |"]
    assert "3 of 78" in made["compare-run"]


def test_results_of_another_schedule_are_left_out(tmp_path: Path) -> None:
    keep(tmp_path, EXACT, SMALL)
    kept = TrainingResults(tmp_path, {})
    shorter = plan.ComparisonPlan(("bfp:7",), {"hdc": plan.SHORT["hdc"]}).jobs()[0]
    kept.keep(shorter, replace(SMALL, method="bfp:7"))
    (summary,) = page.summarised(tmp_path)
    assert [each.method for each in summary.methods] == ["exact", "rht:4"]
    assert (summary.parameters, summary.steps, summary.workers) == (1_149_010, 1500, 4)


def test_nothing_is_advised_before_a_hook_of_pytorch_was_tried(tmp_path: Path) -> None:
    keep(tmp_path, EXACT, SMALL)
    made = page.regions(tmp_path)
    assert made["compare-advice"] == made["compare-losses"] == "No results yet."
    assert "| rht:4 | 90.00 % |" in made["compare-tables"]


def damaged(content: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return JSON with another value at a path; of `*`, every key."""
    if not path:
        return value
    keys = list(content) if path[0] == "*" else [path[0]]
    return {**content, **{key: damaged(content[key], path[1:], value) for key in keys}}


@pytest.mark.parametrize("value", [None, "x\x1b[2J", {"a": 1}, -1, 10**400, [None]])
@pytest.mark.parametrize(
    "place",
    [
        *((), ("units",), ("units", "*"), ("units", "*", "settings"), ("units", "*", "settings", "link")),
        *(("units", "*", "settings", "job"), ("units", "*", "settings", "job", "training")),
        *(("units", "*", "settings", "job", each) for each in ("model", "method", "workers", "data", "seed")),
        *(("units", "*", "value"), ("units", "*", "value", "took_s"), ("units", "*", "value", "looks")),
        *(("units", "*", "value", "looks", each) for each in ("step", "score", "wire_bytes", "compute_s")),
    ],
)
def test_hostile_results_are_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: tuple[str, ...], value: Any
) -> None:
    keep(tmp_path, EXACT, FP16, SMALL)
    file = tmp_path / "compare-hdc.json"
    file.write_text(json.dumps(damaged(json.loads(file.read_text()), place, value)))
    code = main(["compare", "--advise", "--results", str(tmp_path), "--model", "hdc", "--rate", "100mbit"])
    err = capsys.readouterr().err
    assert (code == 0) == (err == "")
    assert len(err.splitlines()) == bool(code)
    assert err.strip("\n").isprintable()
    (job,) = plan.ComparisonPlan(("exact",), {"hdc": plan.FULL["hdc"]}).jobs()
    found = TrainingResults(tmp_path, {}).find(job)
    assert found is None or found.last.step > -2


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"\xff", b"NaN", b'{"units": NaN}'])
def test_files_that_are_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes) -> None:
    (tmp_path / "compare-hdc.json").write_bytes(data)
    assert main(["compare", "--advise", "--results", str(tmp_path), "--model", "hdc"]) == 1
    assert "compare-hdc.json is not a file of results" in capsys.readouterr().err
    assert ResultFile(tmp_path / "compare-hdc.json").find("a", {}, int) is None


def test_a_network_that_learns_photographs_has_weights_for_colours(tmp_path: Path) -> None:
    (job,) = plan.ComparisonPlan(("exact",), {"resnet": plan.FULL["resnet"]}, images="/mnist").jobs()
    TrainingResults(tmp_path, {}).keep(job, replace(EXACT, model="resnet"))
    (summary,) = page.summarised(tmp_path)
    assert (summary.data, summary.parameters) == ("photos", 308_650)


def test_a_checkout_is_rebuilt(tmp_path: Path) -> None:
    needs.module("matplotlib")
    results = tmp_path / page.RESULTS
    results.mkdir(parents=True)
    keep(results, EXACT, FP16, SMALL)
    (tmp_path / "softnic" / "experiments" / "compare").mkdir(parents=True)
    marks = "\n".join(f"<!-- results: {name} -->\n<!-- end -->" for name in page.regions(results))
    (tmp_path / page.PAGE).write_text(f"# Title\n{marks}\n")
    (tmp_path / "README.md").write_text("# Name\n<!-- results: accuracy -->\n<!-- end -->\n")
    written = page.rebuild(tmp_path)
    assert {path.name for path in written} == {
        *("comparison.md", "advice.json", "compare-hdc.svg", "overview.svg", "README.md")
    }
    assert "| `rht:4` | 90.00 % |" in (tmp_path / "README.md").read_text()
    text = (tmp_path / page.PAGE).read_text()
    assert text.startswith("# Title\n")
    assert TIMES in text
    assert "results/compare-hdc.svg" in text
    assert (results / "compare-hdc.svg").read_text().rstrip().endswith("</svg>")
    (found,) = advice.load(tmp_path / "softnic" / "experiments" / "compare" / "advice.json")
    assert found == advice.compared(page.summarised(results)[0])
    page.rebuild(tmp_path)
    assert (tmp_path / page.PAGE).read_text() == text


@pytest.mark.parametrize("kept", [(), (EXACT,)])
def test_a_checkout_with_few_results_is_rebuilt(tmp_path: Path, kept: tuple[TrainingResult, ...]) -> None:
    needs.module("matplotlib")
    results = tmp_path / page.RESULTS
    results.mkdir(parents=True)
    keep(results, *kept)
    (tmp_path / "softnic" / "experiments" / "compare").mkdir(parents=True)
    marks = "\n".join(f"<!-- results: {name} -->\n<!-- end -->" for name in page.regions(results))
    (tmp_path / page.PAGE).write_text(marks)
    (tmp_path / "README.md").write_text("<!-- results: accuracy -->\n<!-- end -->\n")
    written = {path.name for path in page.rebuild(tmp_path)}
    assert written >= {"comparison.md", "advice.json", "README.md"}
    assert ("overview.svg" in written) == bool(kept), "without results there is nothing to draw"


ROOT = Path(__file__).resolve().parents[3]


def test_the_first_screen_is_what_the_results_give() -> None:
    models = page.summarised(ROOT / page.RESULTS)
    shown = overview.panels(ROOT / page.RESULTS, models)
    picture = ROOT / "docs" / "figures" / "overview.svg"
    assert overview.svg(shown) == picture.read_text(), "run `softnic compare --report`"
    for name in ("README.md", "docs/index.md"):
        assert overview.accuracy(models) in (ROOT / name).read_text(), "run `softnic compare --report`"


def test_a_panel_of_one_time_has_an_axis() -> None:
    lines = [overview.MethodLine("exact", "exact", {"1gbit": 10.0})]
    assert "<circle" in overview.svg([overview.Panel("title", "subtitle", lines)])


def test_the_picture_has_all_methods_and_both_colours_of_pages() -> None:
    shown = overview.panels(ROOT / page.RESULTS, page.summarised(ROOT / page.RESULTS))
    assert [panel.title for panel in shown] == ["All-reduce", "Time to accuracy", "Time to accuracy"]
    names = {line.name for panel in shown for line in panel.lines}
    assert {"Gloo exact", "Gloo fp16", "exact", "fp16", "PowerSGD", "softnic rht:4", "softnic, best"} == names
    picture = overview.svg(shown)
    root = ElementTree.fromstring(picture)
    assert root.attrib["viewBox"].split()[2:] == ["960", "345"]
    assert "@media (prefers-color-scheme: dark)" in picture
    assert min(map(float, re.findall(r"(\d+(?:\.\d+)?)px", picture))) * 880 / 960 >= 11, (
        "too small where pages are 880 wide"
    )
    for panel in root.iter(f"{SVG}g"):
        places = [(float(text.attrib["x"]), float(text.attrib["y"])) for text in panel.iter(f"{SVG}text")]
        assert len(places) == len(set(places)) > 10, "one text lies on another"
