"""The smart NIC's formulas, compared with section IV-C of the paper, and the trace of T_total."""

from __future__ import annotations

import math

import pytest

from softnic.model import smartnic
from softnic.model.layers import Layer, mlp
from softnic.model.smartnic import LayerTimes, System

PAPERS = System(N=6, P_Worker=2e12, BW_eth=40e9, beta=3.8, P_FPGA=2e9, BW_pcie=63e9, update_s=1e-10)
LAYER = mlp(1, 2048)[0]
M2 = 2048 * 2048


def test_each_time_is_that_of_the_paper() -> None:
    """By hand, for M = 2048, B = 448, N = 6."""
    R = 32 * 6 * math.ceil(M2 / 6)
    assert smartnic.T_F(LAYER, 448, PAPERS) == pytest.approx(2 * M2 * 448 / 2e12)
    assert smartnic.T_B(LAYER, 448, PAPERS) == pytest.approx(4 * M2 * 448 / 2e12)
    assert smartnic.R(LAYER, PAPERS) == R
    assert smartnic.T_ring(LAYER, PAPERS) == pytest.approx(R * 10 / (6 * 40e9 * 3.8))
    assert smartnic.T_mem(LAYER, PAPERS) == pytest.approx(2 * R / 63e9)
    assert smartnic.T_U(LAYER, PAPERS) == pytest.approx(M2 * 1e-10)


def test_only_half_of_the_rings_steps_add() -> None:
    """Half of the paper's figure, which counts all 2(N - 1)."""
    papers = smartnic.R(LAYER, PAPERS) * 10 / (6 * 2e9 * 32)
    assert smartnic.T_add(LAYER, PAPERS) == pytest.approx(papers / 2)


def test_the_slowest_part_of_an_all_reduce_determines_its_time() -> None:
    times = [f(LAYER, PAPERS) for f in (smartnic.T_ring, smartnic.T_add, smartnic.T_mem)]
    assert smartnic.T_AR(LAYER, PAPERS) == max(times) == times[2]


def test_gradients_are_padded_to_equal_chunks() -> None:
    system = System(N=3, P_Worker=1.0, BW_eth=1.0)
    assert smartnic.R(Layer("odd", 10, 0, 0), system) == 32 * 12


def test_a_short_step_takes_a_latency() -> None:
    """A chunk below the grain is forwarded when it is complete; a large one hides the latency."""
    system = System(N=4, P_Worker=1.0, BW_eth=8e9, latency_s=1e-3)
    small = Layer("small", 4 * 250, 0, 0)
    assert smartnic.T_step(small, system) == pytest.approx(1e-6 + 1e-3)
    assert smartnic.T_ring(small, system) == pytest.approx(6 * (1e-6 + 1e-3))
    large = Layer("large", 10**9, 0, 0)
    assert smartnic.T_step(large, system) == pytest.approx(1.0)
    assert smartnic.T_ring(large, system) == pytest.approx(6 + 1e-3)


def test_one_node_exchanges_nothing() -> None:
    alone = System(N=1, P_Worker=2e12, BW_eth=40e9, P_FPGA=2e9, BW_pcie=63e9, latency_s=1e-3)
    assert smartnic.T_AR(LAYER, alone) == 0


def papers_total(F: list[float], B: list[float], AR: list[float], U: list[float]) -> float:
    """T_total, written as in the paper; lists are counted from 1."""
    L = len(F) - 1
    middle = sum(max(U[ell + 1] + B[ell - 1], AR[ell]) for ell in range(2, L))
    return sum(F[1:]) + B[L] + max(B[L - 1], AR[L]) + middle + max(U[2], AR[1]) + U[1]


@pytest.mark.parametrize("exchange", [0.0, 0.5, 3.0, 7.0])
def test_total_is_the_papers_sum(exchange: float) -> None:
    layer_times = [LayerTimes(1.0 + i, 2.0 + i % 3, exchange * (1 + i % 2), 0.25 * (1 + i)) for i in range(6)]
    lists = [[0.0] + [getattr(layer, name) for layer in layer_times] for name in
             ("forward_s", "backward_s", "exchange_s", "update_s")]  # fmt: skip
    assert smartnic.overlapped(layer_times).total_s == pytest.approx(papers_total(*lists))


def test_total_of_one_layer_counts_its_exchange_once() -> None:
    assert smartnic.overlapped([LayerTimes(1, 2, 5, 0.5)]).total_s == 8.5


def test_what_is_hidden_is_not_exposed() -> None:
    quick = [LayerTimes(1, 2, 1, 0.5)] * 5
    assert smartnic.overlapped(quick).exposed_s == pytest.approx(0.5)  # of the last one, beyond the update above it
    assert smartnic.sequential(quick).exposed_s == 5


@pytest.mark.parametrize("wrong", [{"N": 0}, {"alpha": 0.0}, {"BW_eth": -1.0}, {"P_Worker": 0.0}])
def test_impossible_systems_are_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)) if "N" not in wrong else "1 worker"):
        System(**{"N": 2, "P_Worker": 1.0, "BW_eth": 1.0, **wrong})  # type: ignore[arg-type]


def test_total_of_the_papers_mlp_is_sane() -> None:
    """Its claim for B = 1792: all-reduce hides behind the backward pass, so 32 nodes take hardly longer than one."""
    layers = mlp(20, 2048)
    alone, many = (
        smartnic.T_total(layers, 1792, System(N=n, P_Worker=2.2e12, BW_eth=40e9, update_s=1e-10)) for n in (1, 32)
    )
    assert 1.0 < many / alone < 1.03
