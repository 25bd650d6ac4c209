"""Both kinds of LGC on ranks: phases compared with calculations by hand, equal bits, no loss, bytes counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from softnic import gradients
from softnic.gradients import Floats, Method, MethodError
from softnic.gradients.lgc.phases import COMPRESSED, FULL, LEARN, Lgc
from softnic.gradients.lgc.ring import LgcRing
from softnic.gradients.lgc.server import LgcServer
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run

SIZES = {"a.weight": 40, "b.weight": 3000, "b.bias": 8, "c.weight": 5000, "d.weight": 200, "d.bias": 10}
KINDS: list[type[Lgc]] = [LgcRing, LgcServer]
Results = list[dict[str, Floats]]


def given(rank: int, step: int, sizes: dict[str, int] | None = None) -> dict[str, Floats]:
    rng = np.random.default_rng([rank, step])
    return {name: rng.standard_normal(size, dtype=np.float32) for name, size in (sizes or SIZES).items()}


def train(kind: type[Lgc], size: int, steps: int, **settings: Any) -> tuple[list[Results], list[Lgc]]:
    """Return for each rank the result of each step, and the method in its final state."""
    methods: dict[int, Lgc] = {}

    def program(comm: Communicator) -> Results:
        methods[comm.rank] = kind(0.01, **settings)
        results = []
        for step in range(steps):
            mine = given(comm.rank, step)
            methods[comm.rank].average(comm, mine)
            results.append(mine)
        return results

    return run(size, program), [methods[rank] for rank in range(size)]


def top(values: Floats, count: int) -> Any:
    return np.argsort(-np.abs(values))[:count]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_ranks_end_with_the_same_bits_in_every_phase(kind: type[Lgc], size: int) -> None:
    results, _ = train(kind, size, 6, full=1, learn=3)
    for step in range(6):
        for name in SIZES:
            assert len({mine[step][name].tobytes() for mine in results}) == 1, (step, name)
            assert np.all(np.isfinite(results[0][step][name]))
            assert np.any(results[0][step][name])


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_phase_is_exact_and_the_first_layer_always(kind: type[Lgc]) -> None:
    results, _ = train(kind, 3, 4, full=2, learn=1)
    for step in range(4):
        for name in SIZES if step < 2 else ["a.weight"]:
            expected = np.mean([given(rank, step)[name] for rank in range(3)], axis=0)
            np.testing.assert_allclose(results[0][step][name], expected, atol=1e-6)


def test_the_second_phase_of_a_ring_is_one_ranks_choice() -> None:
    results, _ = train(LgcRing, 3, 1, full=0, learn=5)
    for name, size in SIZES.items():
        if name == "a.weight":
            continue
        mean = np.mean([given(rank, 0)[name] for rank in range(3)], axis=0)
        indices = np.flatnonzero(results[0][0][name])
        choices = [sorted(top(given(rank, 0)[name], max(1, size // 100))) for rank in range(3)]
        assert indices.tolist() in choices
        np.testing.assert_allclose(results[0][0][name][indices], mean[indices], rtol=1e-5, atol=1e-7)


def test_the_second_phase_of_a_server_is_every_workers_choice() -> None:
    results, _ = train(LgcServer, 3, 1, full=0, learn=5)
    for name, size in SIZES.items():
        if name == "a.weight":
            continue
        expected = np.zeros(size, np.float32)
        for rank in range(3):
            mine = given(rank, 0)[name]
            indices = top(mine, max(1, size // 100))
            expected[indices] += mine[indices] / 3
        np.testing.assert_allclose(results[0][0][name], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_until_the_third_phase_nothing_is_lost(kind: type[Lgc]) -> None:
    """The means plus the accumulated residuals equal the sum of the gradients."""
    steps = 6
    results, methods = train(kind, 2, steps, full=2, learn=steps)
    for name in SIZES:
        handed = sum(given(rank, step)[name] for rank in range(2) for step in range(steps))
        out = 2 * sum(results[0][step][name] for step in range(steps))
        left = sum(method.kept("accumulated", name, SIZES[name]) for method in methods)
        np.testing.assert_allclose(out + left, handed, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_momentum_is_corrected_and_masked(kind: type[Lgc]) -> None:
    results, methods = train(kind, 2, 2, full=1, learn=5, momentum=0.5)
    first = [given(rank, 0) for rank in range(2)]
    second = [given(rank, 1) for rank in range(2)]
    expected = np.mean([0.5 * first[rank]["a.weight"] + second[rank]["a.weight"] for rank in range(2)], axis=0)
    np.testing.assert_allclose(results[0][1]["a.weight"], expected, atol=1e-6)
    velocity = methods[1].kept("velocity", "c.weight", 5000)
    accumulated = methods[1].kept("accumulated", "c.weight", 5000)
    spent = velocity == 0
    assert np.count_nonzero(spent) == 50
    np.testing.assert_array_equal(accumulated == 0, spent)
    expected = 0.5 * first[1]["c.weight"] + second[1]["c.weight"]
    np.testing.assert_allclose(accumulated[~spent], expected[~spent], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_third_phase_restores_the_selected_mean(kind: type[Lgc]) -> None:
    """Once trained, the mean of the selected elements is close to that without the autoencoder."""

    def program(comm: Communicator) -> tuple[dict[str, Floats], dict[str, Floats]]:
        method = kind(0.01, full=0, learn=50)
        for step in range(50):
            method.average(comm, given(comm.rank, step))
        mine = given(comm.rank, 50)
        before = {name: method.kept("accumulated", name, size) + mine[name] for name, size in SIZES.items()}
        method.average(comm, mine)
        after = {name: method.kept("accumulated", name, size) for name, size in SIZES.items()}
        return mine, {name: np.where(after[name] == 0, before[name], 0) for name in SIZES}

    ranks = run(2, program)
    for name in ("b.weight", "c.weight", "d.weight", "d.bias"):
        restored, exact = ranks[0][0][name], np.mean([spent[name] for _, spent in ranks], axis=0)
        assert set(np.flatnonzero(restored)) <= set(np.flatnonzero(exact))
        error = np.mean((restored - exact) ** 2) / np.mean(exact**2)
        if name.startswith("d"):  # not the autoencoder's
            assert error < 1e-9
        else:
            assert 0 < error < 0.7, name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("until", [1, 3, 5])
def test_training_continues_from_a_checkpoint(kind: type[Lgc], until: int) -> None:
    """Before, during and after the training of the autoencoder, bit by bit."""
    whole, _ = train(kind, 2, 7, full=2, learn=2, momentum=0.5)

    def program(comm: Communicator) -> dict[str, Floats]:
        method = kind(0.01, full=2, learn=2, momentum=0.5)
        for step in range(7):
            if step == until:
                state = method.state_dict()
                method = kind(0.01, full=2, learn=2, momentum=0.5)
                method.load_state_dict(state)
            mine = given(comm.rank, step)
            method.average(comm, mine)
        return mine

    for mine, expected in zip(run(2, program), whole, strict=True):
        for name in SIZES:
            np.testing.assert_array_equal(mine[name], expected[6][name])


LARGE = {"a.weight": 32, "b.weight": 400_000, "c.weight": 200_000, "d.weight": 100}


def bytes_of(name: str, size: int) -> list[Method]:
    """Return the methods after one step of each phase, with the paper's fraction of 0.1 %."""
    methods: dict[int, Method] = {}

    def program(comm: Communicator) -> None:
        methods[comm.rank] = gradients.get(f"{name}:full=1,learn=1")
        for step in range(3):
            methods[comm.rank].average(comm, given(comm.rank, step, LARGE))

    run(size, program)
    return [methods[rank] for rank in range(size)]


def test_a_ring_sends_a_code_and_one_ranks_indices() -> None:
    found = bytes_of("lgc-ring", 3)
    sent = []
    for method in found:
        assert isinstance(method, LgcRing)
        full, learn, compressed = (method.traffic[phase] for phase in (FULL, LEARN, COMPRESSED))
        assert (full.ratio, full.covered_ratio) == (1, 1)
        assert learn.covered_sent >= 600 * 4
        assert compressed.covered_given == 2_400_000
        assert compressed.covered_ratio >= 200
        assert compressed.sent == compressed.covered_sent + 32 * 4 + 4
        sent.append(compressed.covered_sent)
    code = 608 // 4 * 4
    assert sorted(sent)[:2] == [code, code]  # all but the leader
    assert 600 * 2 < sorted(sent)[2] - code < 600 * 3
    assert [getattr(method, "traffic")[LEARN].weights > 0 for method in found] == [True, False, False]  # noqa: B009


def test_workers_send_indices_and_innovation_and_one_the_code() -> None:
    found = bytes_of("lgc-ps", 3)
    sent = []
    for method in found:
        assert isinstance(method, LgcServer)
        compressed = method.traffic[COMPRESSED]
        assert compressed.covered_ratio >= 380
        assert compressed.down > 0
        sent.append(compressed.covered_sent)
    innovation = 60 * 4 + 75 + 2 * 4
    assert all(600 * 2 < each - innovation < 600 * 3 for each in sent[:2])
    assert sent[2] - 608 // 4 * 4 == pytest.approx(sent[0], rel=0.02)
    stats = found[2].stats
    assert stats.given_bytes == 3 * sum(LARGE.values()) * 4


@pytest.mark.parametrize("kind", KINDS)
def test_infinite_gradients_arrive_and_leave_no_residual(kind: type[Lgc]) -> None:
    """In every phase and from any rank; the autoencoder is not trained on them."""

    def program(comm: Communicator) -> list[bool]:
        method = kind(0.01, full=2, learn=3, momentum=0.5)
        finite = []
        for step in range(8):
            mine = given(comm.rank, step)
            if step in (1, 3, 6) and comm.rank == 1:
                mine["c.weight"][7] = np.inf
            method.average(comm, mine)
            finite.append(all(bool(np.isfinite(gradient).all()) for gradient in mine.values()))
        return finite

    for finite in run(2, program):
        assert finite == [step not in (1, 3, 6) for step in range(8)]


@pytest.mark.parametrize(
    "text",
    [
        "lgc-ring:0",
        "lgc-ring:1.5",
        "lgc-ring:learn=0",
        "lgc-ring:full=-1",
        "lgc-ring:momentum=1",
        "lgc-ring:order=size",
        "lgc-ring:innovation=0.1",
        "lgc-ps:innovation=0",
        "lgc-ps:similarity=-1",
    ],
)
def test_invalid_parameters_are_refused(text: str) -> None:
    with pytest.raises(MethodError):
        gradients.get(text)


def test_all_parameters_must_come_together() -> None:
    def program(comm: Communicator) -> None:
        method = gradients.get("lgc-ring")
        assert method.whole
        method.average(comm, given(0, 0))
        method.average(comm, {"a.weight": np.ones(40, np.float32)})

    with pytest.raises(MethodError, match="all parameters"):
        run(1, program)
