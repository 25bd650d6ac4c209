"""What LGC's items keep of a training, what nodes accumulate, and claims as they follow from results."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.claim import Results
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, ValueTable
from benchmarks.papers.lgc import fig13 as lgc_fig13
from benchmarks.papers.lgc import fig14 as lgc_fig14
from benchmarks.papers.lgc import paper, table6
from benchmarks.papers.lgc import training as lgc_training
from benchmarks.papers.lgc.selected import Accumulators, Selected
from benchmarks.papers.lgc.training import MethodTraining, PhaseSteps, summarised
from benchmarks.papers.verdicts import PAPERS
from softnic.experiments.compare.run import TrainingNodes
from softnic.experiments.compare.training import Evaluation, RankSteps
from softnic.gradients import Floats
from softnic.gradients.lgc.selection import layout, select
from softnic.measure.kept import ResultFile, plain

NODES = 3
SIZES = {"first.weight": 8, "middle.weight": 64, "last.weight": 32}


def gradients(seed: int) -> list[dict[str, Floats]]:
    rng = np.random.default_rng(seed)
    return [{name: rng.standard_normal(size, np.float32) for name, size in SIZES.items()} for _ in range(NODES)]


def test_a_server_clears_each_workers_own_selection_and_a_ring_its_leaders() -> None:
    given = layout(gradients(0)[0], 0.05)
    selected = Selected(given, NODES, momentum=0.5)
    ring, server = (Accumulators(NODES, given.starts[-1], 0.5) for _ in range(2))
    for step in range(4):
        vectors = [np.concatenate([node[name] for name in given.names]) for node in gradients(step)]
        leader = step % NODES
        selected.add(vectors, leader)
        ring.add(vectors)
        server.add(vectors)
        chosen = select(ring.sums[leader], given)
        own = [select(each, given) for each in server.sums]
        for node in range(NODES):
            values = server.sums[node][own[node][: given.covered]]
            made = selected.server["value"][-1][node]
            np.testing.assert_allclose(made, values / np.sqrt(np.mean(values**2)), rtol=1e-5)
            ring.clear_sent(node, chosen)
            server.clear_sent(node, own[node])
    different = [not np.array_equal(a, b) for a, b in zip(ring.sums, server.sums, strict=True)]
    assert all(different)


def test_cleared_elements_lose_their_momentum() -> None:
    of = Accumulators(1, 3, momentum=0.5)
    of.add([np.array([1, 2, 3], np.float32)])
    of.clear_sent(0, np.array([2], np.uint32))
    of.add([np.zeros(3, np.float32)])
    np.testing.assert_array_equal(of.sums[0], [1.5, 3, 0])
    of.clear()
    of.add([np.zeros(3, np.float32)])
    np.testing.assert_array_equal(of.sums[0], [0.25, 0.5, 0])


def an_evaluation(step: int, score: float) -> Evaluation:
    return Evaluation(step, 0.0, 0.0, score, 1000 * step, 0.0, 0.0, 0.0)


def test_a_training_is_kept_in_few_figures() -> None:
    def traffic(calls: int, sent: int) -> dict[str, int]:
        return {"calls": calls, "covered_given": 400 * calls, "covered_sent": sent, "down": 0, "weights": calls}

    phases = {"full": traffic(10, 4000), "learn": traffic(20, 200), "compressed": traffic(70, 70)}
    seconds = [0.1] * 10 + [0.3] * 20 + [0.05] * 70
    losses = [float(step) for step in range(100)]
    ranks = [RankSteps(losses, [rank * each for each in seconds], 400, [7] * 100, phases) for rank in (1, 3)]
    made = summarised([an_evaluation(50, 0.5), an_evaluation(100, 0.75)], ranks)
    assert made.accuracy == 0.75
    assert made.wire == 100_000
    assert made.late_ratio == pytest.approx(400 / 7)
    assert len(made.losses) == 20
    assert made.losses[0] == 2  # of steps 0 to 4
    assert (made.losses_at[0], made.losses_at[-1]) == (5, 100)
    learning = made.phases["learn"]
    assert learning.seconds == pytest.approx(0.6)
    assert (learning.given, learning.sent, learning.down, learning.weights) == (400, 10, 0, 40)
    assert made.phases["compressed"].seconds == pytest.approx(0.1)
    assert len(json.dumps(plain(made))) < 1000


def a_training(accuracy: float, loss: float, last: float = 0.5) -> MethodTraining:
    phases = {
        "full": PhaseSteps(1.0, 400, 400, 0, 0),
        "learn": PhaseSteps(2.0, 400, 10, 0, 40),
        "compressed": PhaseSteps(last, 400, 2, 0, 0),
    }
    return MethodTraining([2, 4], [0.1, accuracy], [2.3, loss], 1000, 400, 4.0, phases)


def test_an_interrupted_run_trains_only_what_is_missing(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def train(_self: object, job: object, *_rest: object, **_named: object) -> tuple[object, list[RankSteps]]:
        trained.append(job.method)  # type: ignore[attr-defined]
        if len(trained) == 2:
            raise KeyboardInterrupt
        return dataclasses.make_dataclass("R", ["evaluations"])([an_evaluation(6, 0.5)]), [
            RankSteps([1.0] * 6, [0.1] * 6, 400, [7] * 6, {})
        ]

    monkeypatch.setattr(TrainingNodes, "train", train)
    given = dataclasses.replace(context, results=tmp_path, kept=ResultFile(None))
    with pytest.raises(KeyboardInterrupt):
        lgc_fig13.make(given)
    again = dataclasses.replace(given, measured={})
    assert lgc_fig13.make(again).tables[0].rows
    fixed, exponential, warm_up = lgc_fig13.strategies(lgc_training.plan(context)).values()
    assert trained == [fixed, exponential, exponential, warm_up]


def results(accuracy: float, last: float, warm_up: float, similar: float) -> Results:
    rows: list[list[object]] = []
    phases: list[list[object]] = []
    ends: list[list[object]] = []
    learned: list[list[object]] = []
    for network in ("ConvNet5", "ResNet8"):
        for method in (paper.SERVER, paper.RING):
            rows.append([network, method, "", 100 * (accuracy - 0.9), 0.1, 4.0, 100.0, 100.0, 1.0, 6.0, "", ""])
            phases.append([network, method, "compressed", "", last, 0.0, 0.4, 2.0, 0.0, 0.0])
        for strategy, loss in (("fixed", 0.5), ("exponential", 0.4), ("warm-up", warm_up)):
            ends.append([network, strategy, "", loss, loss, ""])
        learned.append([network, lgc_fig14.ring_name("value"), 0.1, 0.1, 64])
        for similarity, error in ((0.0, 0.2), (0.5, similar)):
            learned.append([network, lgc_fig14.server_name("value", similarity), 0.1, error, 64])
    items = {
        "lgc table6": [
            ValueTable("", table6.COLUMNS, rows),  # type: ignore[arg-type]
            ValueTable("", table6.PHASE_COLUMNS, phases, "phases"),  # type: ignore[arg-type]
        ],
        "lgc fig13": [ValueTable("", lgc_fig13.END_COLUMNS, ends, "end")],  # type: ignore[arg-type]
        "lgc fig14": [ValueTable("", lgc_fig14.COLUMNS, learned)],  # type: ignore[arg-type]
    }
    return Results({name: Item("", tables) for name, tables in items.items()})


@pytest.mark.parametrize(
    ("given", "verdicts"),
    [
        ((0.899, 0.5, 0.3, 0.1), ["in part", "in part", "in part", "confirmed", "in part"]),
        ((0.8, 1.2, 0.6, 0.3), ["not seen", "in part", "not seen", "not seen", "not seen"]),
    ],
)
def test_claims_follow_the_results(given: tuple[float, float, float, float], verdicts: list[str]) -> None:
    measured = [
        claim for claim in PAPERS["lgc"] if claim.place in ("Table IV", "Table V, Fig. 10", "Fig. 13", "Fig. 14")
    ]
    cells = [claim.cells(results(*given)) for claim in measured]
    assert [each[4].strip("*") for each in cells] == verdicts
    points = f"{100 * (given[0] - 0.9):+.2f} ± 0.10"
    assert cells[0][3] == f"{points} and {points} points (server), {points} and {points} (ring): ConvNet5 and ResNet8"
    assert cells[1][3] == "6.0 (server) and 6.0 times fewer (ring)"
