"""The page of published comparisons, generated from kept results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests import needs
from tests.experiments.compare.test_summary import EXACT, FP16, SMALL, WORSE, training
from tests.facades.compare import TrainingResult, TrainingResults, advice, page, plan

torch = needs.module("torch")

TIMES = "| `hdc` | 100 Mbit/s | `rht:4` | 5.6 | 1 | `fp16`, 8.3 s | 1.50 |"
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
    written = page.rebuild(tmp_path)
    assert {path.name for path in written} == {"comparison.md", "advice.json", "compare-hdc.svg"}
    text = (tmp_path / page.PAGE).read_text()
    assert text.startswith("# Title\n")
    assert TIMES in text
    assert "results/compare-hdc.svg" in text
    assert (results / "compare-hdc.svg").read_text().rstrip().endswith("</svg>")
    (found,) = advice.load(tmp_path / "softnic" / "experiments" / "compare" / "advice.json")
    assert found == page.summarised(results)[0]
    page.rebuild(tmp_path)
    assert (tmp_path / page.PAGE).read_text() == text
