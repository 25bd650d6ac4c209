"""One training by several methods, with ranks as threads: weights and counted quantities."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from tests import needs

torch = needs.module("torch")

from softnic.experiments import torch_models  # noqa: E402
from softnic.experiments.compare.training import Evaluation, Interval, RankTraining, Usage  # noqa: E402
from softnic.experiments.data import batches  # noqa: E402
from tests.experiments.compare.trainings import TEXT, TrainedRanks, images, job, new_replica  # noqa: E402

TOLERANCES = {
    "exact": 1e-6,
    "fp16": 1e-3,
    "bf16": 1e-2,
    "powersgd:2": 2e-2,
    "powersgd:2+rht:6": 2e-2,
    "bounded:15": 5e-3,
    "feedback:bounded:15": 5e-3,
    "dgc:0.01,floor=2000000": 1e-6,
    "lgc-ring:full=9,momentum=0.9": 1e-6,
    "wa": 1e-6,
    "wa+bounded:15+adt:24": 5e-3,
}
"""Tolerated change of a weight in three steps. DGC and LGC send all gradients here, with a momentum of their own."""


def by_hand(workers: int = 2) -> npt.NDArray[np.float32]:
    """Return the weights after `job("exact")`, computed on one copy of the model with all workers' batches."""
    given, data = job("exact").training, images()
    model = torch_models.build("hdc", 7)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=given.momentum)
    draws = [batches(len(data.train_labels[r::workers]), given.batch, np.random.default_rng([7, r])) for r in range(2)]
    for step in range(given.steps):
        optimizer.zero_grad()
        for rank in range(workers):
            drawn = next(draws[rank])
            logits = model(data.train_inputs[rank::workers][drawn])
            loss = torch.nn.functional.cross_entropy(logits, data.train_labels[rank::workers][drawn])
            (loss / workers).backward()
        optimizer.param_groups[0]["lr"] = given.rate_at(step)
        optimizer.step()
    flat: npt.NDArray[np.float32] = torch.cat([each.detach().flatten() for each in model.parameters()]).numpy()
    return flat


@pytest.mark.parametrize(("method", "tolerance"), TOLERANCES.items())
def test_ranks_agree_and_stay_near_exact_training(method: str, tolerance: float) -> None:
    trained = TrainedRanks(job(method), images())
    first, second = (trained.replicas[rank].parameters for rank in range(2))
    assert first.tobytes() == second.tobytes()
    assert all(other == trained.evaluations[0] for other in trained.evaluations)
    np.testing.assert_allclose(first, by_hand(), atol=tolerance)


def test_ranks_report_every_step_and_what_their_method_sent() -> None:
    trained = TrainedRanks(job("lgc-ring:full=2,learn=1,momentum=0.9", steps=4), images())
    for rank in trained.done.values():
        assert len(rank.losses) == len(rank.seconds) == len(rank.sent_bytes) == 4
        assert rank.sent_bytes[:2] == [rank.given_bytes] * 2
        assert 0 < rank.sent_bytes[3] < rank.given_bytes / 2
        assert {phase: each["calls"] for phase, each in rank.traffic.items()} == {
            "full": 2,
            "learn": 1,
            "compressed": 1,
        }
    assert TrainedRanks(job("wa", steps=1), images()).done[0].sent_bytes == []


def test_an_aggregator_is_not_counted_as_a_worker() -> None:
    trained = TrainedRanks(job("wa", steps=2), images())
    assert len(trained.evaluations) == 3
    assert trained.evaluations[0][0].epoch == pytest.approx(2 * 2 * 4 / 40)


@pytest.mark.parametrize("model", ["convnet", "transformer"])
def test_other_models_are_trained_alike(model: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = images()
    if torch_models.reads_text(model):
        path = tmp_path_factory.mktemp("text") / "text"
        path.write_text(TEXT)
        data = torch_models.text(path)
    trained = TrainedRanks(job("exact", model, steps=2, batch=2), data)
    (evaluation,) = trained.evaluations[0]
    assert trained.replicas[0].parameters.tobytes() == trained.replicas[1].parameters.tobytes()
    assert 4 < evaluation.score < 12 if torch_models.reads_text(model) else 0 <= evaluation.score <= 1


def test_evaluations_accumulate_bytes_and_times() -> None:
    meters = [
        map(Usage, itertools.count(0, 100), itertools.count()),
        map(Usage, itertools.count(5, 7), itertools.count()),
    ]
    trained = TrainedRanks(job("exact", steps=5, looks=2), images(), lambda rank: next(meters[rank]))
    first = trained.evaluations[0]
    assert [evaluation.step for evaluation in first] == [2, 5]
    assert [evaluation.wire_bytes for evaluation in first] == [107, 214]
    assert [evaluation.cpu_s for evaluation in first] == [2, 4]
    assert trained.steps == [1, 2, 3, 4, 5]
    assert 0 < first[0].exchange_s < first[0].train_s < first[1].train_s


def test_the_score_covers_the_whole_test_set() -> None:
    data = images(test=9)
    trained = TrainedRanks(job("exact", steps=1), data)
    model = trained.replicas[0].model.eval()
    with torch.no_grad():
        right = (model(data.test_inputs).argmax(-1) == data.test_labels).float().mean()
    assert trained.evaluations[0][0].score == pytest.approx(float(right))


def test_waiting_for_a_computing_rank_is_not_exchange() -> None:
    class Alone:
        """Communicator of one rank; the other one had no correct answer of three."""

        rank, size = 0, 2

        def allgather(self, mine: tuple[float, int, int]) -> list[tuple[float, int, int]]:
            return [mine, (0.0, 0, 3)]

    given = job("exact", steps=2)
    replica = new_replica(given)
    rank = RankTraining(given, images(), Alone(), replica, None)  # type: ignore[arg-type]
    parts = [
        Interval(0.0, Usage(5, 1.0), Usage(15, 2.0), ready=[1.0, 5.0], done=[3.0, 8.0], losses=[1.0, 2.0]),
        Interval(0.5, Usage(50, 4.0), Usage(70, 4.5), ready=[2.0, 4.0], done=[3.5, 7.0], losses=[3.0, 4.0]),
    ]
    evaluation = rank.evaluate(2, Evaluation(0, 0.0, 0.0, 0.0, 5, 100.0, 10.0, 2.0), parts)
    assert evaluation.wire_bytes == 35
    assert evaluation.train_s == 108.0
    assert evaluation.exchange_s == 10 + ((3 - 2) + (8 - 5) + (3.5 - 2) + (7 - 5)) / 2
    assert evaluation.loss == 2.5
    assert evaluation.cpu_s == 3.5


def test_gradients_stay_views_of_one_array() -> None:
    data = images()
    replica = new_replica(job("exact", "convnet"))
    for _ in range(2):
        replica.forward(data.train_inputs[:4], data.train_labels[:4])
        assert list(replica.backward()) == [0]
        replica.timeline.start()
        replica.update()
    expected = torch.cat([p.grad.flatten() for p in replica.model.parameters() if p.grad is not None]).numpy()
    assert expected.tobytes() == replica.gradients.tobytes()
    assert [array.shape for array in replica.named_parameters.values()] == [p.shape for p in replica.model.parameters()]
    for parameter, array in zip(replica.model.parameters(), replica.named_parameters.values(), strict=True):
        assert parameter.detach().numpy().tobytes() == array.tobytes()
        assert parameter.data_ptr() == array.ctypes.data
