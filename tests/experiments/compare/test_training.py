"""One training by several methods, its ranks threads of this process: what they learn, and what is counted of it."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from tests import needs

torch = needs.module("torch")

from tests.experiments.compare.trainings import TEXT, TrainedRanks, images, job, new_replica  # noqa: E402
from tests.facades.compare import Evaluation, Interval, RankTraining, Usage, torch_models  # noqa: E402
from tests.facades.train import batches  # noqa: E402

TOLERANCES = {
    "exact": 1e-6,
    "fp16": 1e-3,
    "powersgd:2": 2e-2,
    "bounded:15": 5e-3,
    "feedback:bounded:15": 5e-3,
    "dgc:0.01,floor=2000000": 1e-6,
    "lgc-ring:full=9,momentum=0.9": 1e-6,
    "wa": 1e-6,
    "wa+bounded:15+adt:24": 5e-3,
}
"""What methods may change of a weight in three steps. DGC and LGC send all there, with a momentum of their own."""


def by_hand(workers: int = 2) -> npt.NDArray[np.float32]:
    """What `job("exact")` comes to: one copy of the model, given all workers' batches one after the other."""
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
def test_ranks_agree_and_learn_what_the_method_leaves(method: str, tolerance: float) -> None:
    trained = TrainedRanks(job(method), images())
    first, second = (trained.replicas[rank].parameters for rank in range(2))
    assert first.tobytes() == second.tobytes()
    assert all(looks == trained.evaluations[0] for looks in trained.evaluations)
    np.testing.assert_allclose(first, by_hand(), atol=tolerance)


def test_an_aggregator_is_no_worker() -> None:
    trained = TrainedRanks(job("wa", steps=2), images())
    assert len(trained.evaluations) == 3
    assert trained.evaluations[0][0].epoch == pytest.approx(2 * 2 * 4 / 40)


@pytest.mark.parametrize("model", ["convnet", "transformer"])
def test_other_models_go_the_same_way(model: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = images()
    if torch_models.reads_text(model):
        path = tmp_path_factory.mktemp("text") / "text"
        path.write_text(TEXT)
        data = torch_models.text(path)
    trained = TrainedRanks(job("exact", model, steps=2, batch=2), data)
    (look,) = trained.evaluations[0]
    assert trained.replicas[0].parameters.tobytes() == trained.replicas[1].parameters.tobytes()
    assert 4 < look.score < 12 if torch_models.reads_text(model) else 0 <= look.score <= 1


def test_looks_come_after_equal_parts_and_count_all_bytes_until_then() -> None:
    meters = [
        map(Usage, itertools.count(0, 100), itertools.count()),
        map(Usage, itertools.count(5, 7), itertools.count()),
    ]
    trained = TrainedRanks(job("exact", steps=5, looks=2), images(), lambda rank: next(meters[rank]))
    looks = trained.evaluations[0]
    assert [look.step for look in looks] == [2, 5]
    assert [look.wire_bytes for look in looks] == [107, 214]
    assert [look.cpu_s for look in looks] == [2, 4]
    assert trained.steps == [1, 2, 3, 4, 5]
    assert 0 < looks[0].exchange_s < looks[0].train_s < looks[1].train_s


def test_a_score_is_that_of_all_parts_of_the_test_set() -> None:
    data = images(test=9)
    trained = TrainedRanks(job("exact", steps=1), data)
    model = trained.replicas[0].model.eval()
    with torch.no_grad():
        right = (model(data.test_inputs).argmax(-1) == data.test_labels).float().mean()
    assert trained.evaluations[0][0].score == pytest.approx(float(right))


def test_waiting_for_a_rank_that_computes_is_no_exchange() -> None:
    class Alone:
        """One rank's communicator, in which another had nothing right of three."""

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
    look = rank.evaluate(2, Evaluation(0, 0.0, 0.0, 0.0, 5, 100.0, 10.0, 2.0), parts)
    assert look.wire_bytes == 35
    assert look.train_s == 108.0
    assert look.exchange_s == 10 + ((3 - 2) + (8 - 5) + (3.5 - 2) + (7 - 5)) / 2
    assert look.loss == 2.5
    assert look.cpu_s == 3.5


def test_gradients_are_views_of_one_array_and_stay_so() -> None:
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
