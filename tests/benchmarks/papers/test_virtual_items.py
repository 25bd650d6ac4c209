"""Items in virtual time and by formula: the smart NIC's iterations and schemes, and modes of INCEPTIONN's NICs."""

from __future__ import annotations

import pytest

from benchmarks.papers.inceptionn import packets
from benchmarks.papers.lgc import over_steps
from benchmarks.papers.smartnic import fig2b as smartnic_fig2b
from benchmarks.papers.smartnic import iterations
from softnic.model import predict
from softnic.model.costs import Costs

WORDS = 1 << 14


@pytest.mark.parametrize("strategy", iterations.STRATEGIES)
def test_iterations_take_the_formulas_time(strategy: str) -> None:
    times = iterations.computed(strategy, 1792)
    predicted = predict.iteration_of(times, iterations.STRATEGIES[strategy]).total_s
    computing = sum(layer.forward_s + layer.backward_s + layer.update_s for layer in times)
    taken = iterations.simulated(strategy, 1792, 512)
    assert computing < taken < 1.15 * predicted


def test_the_naive_iteration_exposes_more_than_an_overlapped_one() -> None:
    naive, host = (iterations.simulated(strategy, 448, 512) for strategy in (iterations.NAIVE, iterations.HOST))
    assert naive > 1.2 * host


def test_packets_keep_their_number_and_become_shorter() -> None:
    exact, fill, packet = (packets.exchange(packets.INC, mode, 0.0008, WORDS) for mode in ("exact", "fill", "packet"))
    assert 0.9 * exact.frames < packet.frames < 1.2 * exact.frames
    assert fill.frames < 0.5 * packet.frames
    assert fill.megabytes < packet.megabytes < 0.5 * exact.megabytes
    assert fill.seconds <= packet.seconds < exact.seconds


def test_the_default_of_mpi_by_hand() -> None:
    given = Costs(1.0, 0.01, 0.001)
    n = 4096.0
    default = smartnic_fig2b.mpi_default
    assert default(8, n, given).total_s == pytest.approx(2 * 3 + 2 * 7 / 8 * n * 0.01 + 7 / 8 * n * 0.001)
    folded = default(8, n, given).total_s + 2 + 2 * n * 0.01 + n * 0.001
    assert default(12, n, given).total_s == pytest.approx(folded)
    assert default(8, 1024.0, given).total_s == pytest.approx(3 * (1 + 1024 * 0.01 + 1024 * 0.001))
    assert default(1, n, given).total_s == 0


def test_shares_of_a_look_by_hand() -> None:
    look = over_steps.Look(1, "a", 10.0, 8.0, 7.5, 4.0, 2.0, 1.5)
    assert (look.share, look.chance_share, look.beyond) == (0.8, 0.75, 0.125)
    noise = over_steps.Look(1, "a", 0.0, 0.0, 0.0, 4.0, 1.0, 1.5)
    assert (noise.share, noise.beyond) == (0.0, 0.0)
