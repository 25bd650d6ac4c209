"""A2DTWP: published figures compared with each other, trainings with the weights' leg of ranks, times by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.a2dtwp.cases import ORACLE, SeedCase, WeightCase
from benchmarks.papers.a2dtwp.costs import Computed, IterationCosts, Legs, legs_of
from benchmarks.papers.a2dtwp.training import (
    AWP_NAME,
    BASELINE,
    WeightPlan,
    WeightServer,
    WeightTraining,
    sizes,
    trained,
)
from benchmarks.papers.claim import Results
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, ValueTable
from benchmarks.papers.items import make
from benchmarks.papers.learner import block_of, learner, samples
from benchmarks.papers.verdicts import PAPERS
from softnic import codecs
from softnic.experiments.data import DataSet
from softnic.experiments.timeline import Iteration, Phase, Span
from softnic.gradients.awp import AWP
from tests import needs


def test_published_profiles_have_the_shares_of_the_text() -> None:
    for system, (awp, adt) in paper.OVERHEADS.items():
        _, adaptive = paper.PROFILES[system]
        assert adaptive.norms / adaptive.total == pytest.approx(awp, abs=2e-4)
        assert (adaptive.bitpack + adaptive.bitunpack) / adaptive.total == pytest.approx(adt, abs=2e-4)


def test_published_gains_average_to_the_published_mean_on_one_system_only() -> None:
    means = {s: np.mean([g for batches in paper.GAINS[s].values() for g in batches.values()]) for s in paper.SYSTEMS}
    assert means["x86"] == pytest.approx(paper.MEAN_GAINS["x86"], abs=2e-4)
    assert means["POWER"] == pytest.approx(0.1366, abs=1e-4)


def test_layers_are_as_many_as_section_iv_b_counts() -> None:
    assert {model: len(layers) for model, layers in paper.LAYERS.items()} == {"alexnet": 9, "vgg16": 11, "resnet50": 34}


@pytest.mark.parametrize("model", ["alexnet", "vgg16", "resnet50"])
def test_networks_have_the_papers_layers(model: str, data: DataSet) -> None:
    """ResNet has one more convolution in the shortcut of each of three stages, which the paper's table omits."""
    needs.module("torch")
    network = learner(model, data, 7)
    matrices = [name for name, array in network.updated_weights().items() if array.ndim > 1]
    assert len(matrices) == len(paper.LAYERS[model]) + 3 * (model == "resnet50")
    if model == "resnet50":
        blocks = {block_of(model)(name) for name in matrices}
        assert len(blocks) == 1 + 3 + 4 + 6 + 3 + 1
    else:
        assert [block_of(model)(name) for name in matrices] == matrices


def test_a_network_computes_with_the_weights_that_are_written(data: DataSet) -> None:
    needs.module("torch")
    network = learner("alexnet", data, 7)
    given = samples("alexnet", data)
    images, labels = given.train_inputs[:8], given.train_labels[:8]
    first = network.forward_backward(images, labels)
    assert all(np.abs(gradient).max() > 0 for gradient in network.named_gradients.values())
    network.parameters -= np.float32(0.02) * network.gradients
    assert network.forward_backward(images, labels) < first


def test_a_worker_computes_with_rounded_weights_and_the_server_keeps_its_own(data: DataSet) -> None:
    network = learner("hdc", data, 7)
    server = WeightServer(network, 0.01, AWP(1.0, 2))
    network.forward_backward(data.train_inputs[:16], data.train_labels[:16])
    before = {name: array.copy() for name, array in server.master.items()}
    gradients = {name: array.copy() for name, array in network.named_gradients.items()}
    server.step(0, network.gradients.copy())
    for name, array in server.master.items():
        expected = before[name] - np.float32(0.01) * (gradients[name] + np.float32(5e-4) * before[name])
        np.testing.assert_allclose(array, expected, rtol=0, atol=1e-6)
        bits = 8 if array.ndim > 1 else 32
        np.testing.assert_array_equal(network.updated_weights()[name], codecs.get(f"truncate:{bits}").roundtrip(array))
    weights, biases = sizes(network)
    assert (server.sent, server.bits) == (2 * (weights + 4 * biases), 8.0)
    server.publish()
    assert (server.sent, server.bits) == (4 * weights + 12 * biases, 16.0), "the second small change in a row"


@pytest.mark.parametrize("bits", [8, 32])
def test_a_training_counts_the_bytes_it_sent(bits: int, data: DataSet, tmp_path: Path) -> None:
    data.save(tmp_path / "digits")
    plan = WeightPlan("hdc", 16, 0.01, steps=4, eval_every=2, tested=50)
    training = trained(tmp_path / "digits", plan, bits, 0.5)
    weights, biases = sizes(learner("hdc", data, 7))
    assert training.steps == [2, 4]
    assert training.sent == [times * (weights * bits // 8 + 4 * biases) for times in (3, 5)]
    assert training.bits == [bits, bits]
    assert (training.threshold == 0.5) == (bits == 8), "only the baseline is monitored"


def a_seed(errors: dict[str, list[float]]) -> SeedCase:
    """An evaluation every ten steps. A step takes 1 s, and a second more for all 32 bits of the weights."""
    evaluated = [10, 20, 30]
    trainings = {
        name: WeightTraining(
            evaluated, found, [(steps + 1) * (100 if name == "8" else 400) for steps in evaluated], [8] * 3, 0.0
        )
        for name, found in errors.items()
    }
    own = Computed(0.5, 0.25, 0.1, 0.0, 0.0, floats=100)
    costs = IterationCosts(own, Legs(0.25, 0.0, 1.25), Legs(0.25, 0.0, 0.25))
    return SeedCase(trainings, costs)


ERRORS = {"8": [0.9, 0.9, 0.2], "16": [0.9, 0.9, 0.9], "24": [0.9, 0.9, 0.9], "32": [0.9, 0.2, 0.1]}


def test_time_grows_with_bytes() -> None:
    given = a_seed({**ERRORS, AWP_NAME: [0.5, 0.1, 0.1]})
    assert given.target == 0.9, "the best in the first 60 % of 30 steps"
    assert given.costs.seconds("8", given.trainings["8"], 1) == pytest.approx(20 * 1.25)
    assert given.costs.seconds(BASELINE, given.trainings[BASELINE], 1) == pytest.approx(20 * 2.25)
    assert given.costs.seconds(AWP_NAME, given.trainings[AWP_NAME], 1) == pytest.approx(20 * 2.35), "norms are extra"
    assert given.oracle == "8"
    assert given.share("8") == pytest.approx(1.25 / 2.25)
    assert given.sent_share("8") == 0.25


def test_a_training_that_does_not_reach_the_error_has_no_time() -> None:
    given = a_seed({**ERRORS, "32": [0.15, 0.2, 0.1], AWP_NAME: [0.5, 0.5, 0.5]})
    assert (given.target, given.oracle) == (0.15, "32")
    assert given.share(AWP_NAME) is None
    assert given.sent_share(AWP_NAME) is None
    assert given.share(BASELINE) == 1


def test_a_case_is_of_the_seeds_that_reach_the_error() -> None:
    first = a_seed({**ERRORS, AWP_NAME: [0.5, 0.1, 0.1]})
    second = a_seed({**ERRORS, "32": [0.15, 0.2, 0.1], AWP_NAME: [0.5, 0.5, 0.5]})
    given = WeightCase(WeightPlan("hdc", 16, 0.01, steps=30), [first, second])
    assert given.targets.values == [0.9, 0.15]
    assert given.oracles == "8, 32"
    assert given.reaching(AWP_NAME, SeedCase.steps) == [10]
    assert given.reaching(ORACLE, SeedCase.share) == [first.share("8"), 1]
    assert given.errors(AWP_NAME).mean == pytest.approx(0.3)
    assert given.errors(ORACLE).values == [0.2, 0.1], "each seed's own oracle"


@pytest.fixture
def made_of_two_seeds(context: Context, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Item]:
    """Return a function that makes an item of HDC with two seeds, of which one reaches the error with A2DTWP."""
    seeds = [
        a_seed({**ERRORS, AWP_NAME: [0.5, 0.1, 0.1]}),
        a_seed({**ERRORS, "32": [0.15, 0.2, 0.1], AWP_NAME: [0.5, 0.5, 0.5]}),
    ]
    given = WeightCase(WeightPlan("hdc", 16, 0.01, steps=30), seeds)

    def made(name: str) -> Item:
        monkeypatch.setattr(f"benchmarks.papers.a2dtwp.{name}.cases", lambda _context, _chosen: [given])
        return make("a2dtwp", name, context)

    return made


def test_fig3_has_means_and_says_how_many_seeds_reach_the_error(made_of_two_seeds: Callable[[str], Item]) -> None:
    item = made_of_two_seeds("fig3")
    rows = {row["precision"]: row for row in item.tables[0].records()}
    assert list(rows) == ["baseline", AWP_NAME, "oracle (8, 32 bits)"]
    assert [row["seeds that reach it"] for row in rows.values()] == [2, 1, 2]
    assert [row["steps"] for row in rows.values()] == ["10 ± 0", "10", "10 ± 0"]
    assert rows[AWP_NAME]["error at the end (%)"] == "30.00 ± 28.28"
    [finding] = item.findings
    assert finding.startswith("HDC, batch 16: to an error of 52.50 ± 53.03 % the oracle (8, 32 bits) takes ")
    assert finding.endswith("A2DTWP 1.04 times, with 1 of 2 seeds.")


def test_fig4_has_means_and_says_how_many_seeds_reach_the_error(made_of_two_seeds: Callable[[str], Item]) -> None:
    item = made_of_two_seeds("fig4")
    [row] = item.tables[0].records()
    assert row["seeds that reach the error"] == 1
    assert row["A2DTWP, here"] == pytest.approx(2.35 / 2.25)
    assert row["oracle's bits"] == "8, 32"
    [steps] = item.tables[1].records()
    assert steps == {
        "model and batch": "HDC, batch 16",
        "8": "10 (1 of 2)",
        "16": "10 (1 of 2)",
        "24": "10 (1 of 2)",
        "32": "10 ± 0",
        AWP_NAME: "10 (1 of 2)",
    }
    assert "by the 1 of 2 trainings in which it reached the error" in item.findings[0]
    assert item.findings[1] == "It did not reach the error within the steps: HDC, batch 16 (1 of 2 seeds)."


def test_fig5_compares_seed_by_seed(made_of_two_seeds: Callable[[str], Item]) -> None:
    item = made_of_two_seeds("fig5")
    last = item.tables[0].records()[-1]
    assert last["time, times the baseline's"] == pytest.approx(2.35 / 2.25)
    assert last["±"] == 0
    assert last["error, 32 bits (%)"] == "10.00 ± 0.00"
    assert last["error, A2DTWP (%)"] == "30.00 ± 28.28"
    assert "HDC, batch 16 +20.00 ± 28.28;" in item.findings[-1]


def test_legs_of_an_exchange() -> None:
    """Ready at 2 and 3; the update is from 6 to 7; the last worker has its weights at 9."""
    workers = [
        Iteration([Span(Phase.EXCHANGE, -1, 2.0, 8.5)], {-1: 2.0}),
        Iteration([Span(Phase.EXCHANGE, -1, 3.0, 9.0)], {-1: 3.0}),
    ]
    aggregator = Iteration(
        [
            Span(Phase.EXCHANGE, -1, 0.0, 5.5),
            Span(Phase.SUM, -1, 5.5, 6.0),
            Span(Phase.UPDATE, -1, 6.0, 7.0),
            Span(Phase.EXCHANGE, -1, 7.0, 8.0),
        ]
    )
    assert legs_of([*workers, aggregator]) == Legs(2.5, 0.5, 2.0)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.9, None, 1.3], "; over NICs 10.0 % more on average of 2 cases with three seeds, 1 of which take less"),
        ([None], " less by the paper's profiles, in 1 of 2 cases that reach it"),
    ],
)
def test_claims_say_what_nics_took(shares: list[float | None], expected: str) -> None:
    times = "precision | bytes of weights, of 32 bits' | time to the error on x86 | on POWER"
    items = {
        "a2dtwp precision": [ValueTable("", times, [[AWP_NAME, 0.9, 0.8, None]])],
        "a2dtwp fig4": [ValueTable("", "model | A2DTWP, here", [["HDC", share] for share in shares])],
    }
    [claim] = [claim for claim in PAPERS["a2dtwp"] if claim.place == "Figs. 3, 4"]
    cells = claim.cells(Results({name: Item("", tables) for name, tables in items.items()}))
    assert cells[3].endswith(expected)


def test_claims_say_what_whole_trainings_took_over_nics() -> None:
    profile = "precision | model and batch | points more than 32 bits | batch on x86, of 32 bits'"
    whole = "model and batch | steps | time, times the baseline's"
    items = {
        "a2dtwp precision": [ValueTable("", profile, [[AWP_NAME, "HDC, batch 64", 0.1, 1.02]])],
        "a2dtwp fig5": [ValueTable("", whole, [["HDC", 100, 0.5], ["HDC", 200, 0.98], ["VGG-A", 200, 1.01]])],
    }
    [claim] = [claim for claim in PAPERS["a2dtwp"] if claim.place == "Fig. 5"]
    cells = claim.cells(Results({name: Item("", tables) for name, tables in items.items()}))
    assert cells[3] == (
        "2.0 % more by Table II; points of error: HDC +0.10; over NICs (`a2dtwp fig5`) 1.0 % more to 2.0 % less"
    )


@pytest.mark.slow
def test_items_stand_beside_the_paper(everything: dict[str, Item]) -> None:
    rows = {row[0]: row[1:] for row in everything["a2dtwp table2"].tables[0].rows}
    assert rows["weights down"][:4] == [153.93, 52.27, 39.12, 12.21]
    assert rows["total"][:2] == pytest.approx([439.06, 367.08])
    here = [float(value or 0) for value in rows["total"][4:]]
    assert len(here) == 3
    assert min(here) > 0
    assert len(everything["a2dtwp fig5"].tables[1].rows) == 13
    assert [row[1] for row in everything["a2dtwp table1"].tables[0].rows] == ["here"], "HDC is not the paper's"
