"""The share of time spent computing with outer steps: the formula, pinned virtual times, and the published table.

Times are nanoseconds, the same on every machine. A commit that changes one says why.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from softnic import MPI, commands, gradients
from softnic.model import outer
from softnic.model.outer import OuterCase

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "model.md"
SCALE = 100
"""Fewer parameters, and shorter steps, in the quick cases."""
PINNED = {
    "exact": 8_112_902_400,
    "rht:4": 3_322_410_610,
    "rht:3": 3_105_258_400,
    "sparseloco": 2_582_056_000,
    "rht:4, 4 fragments, 5 steps": 2_839_996_439,
    "rht:4, 4 fragments, 20 steps": 2_500_000_000,
    "rht:3, 4 fragments, 5 steps": 2_656_118_648,
    "rht:3, 4 fragments, 20 steps": 2_500_000_000,
}
WHOLE = "rht:3, 4 fragments, 5 steps"
WHOLE_NS = 257_612_614_911
PUBLISHED = {case.way: case for case in outer.cases(OuterCase())}


def small(way: str) -> OuterCase:
    case = PUBLISHED[way]
    return replace(case, parameters=case.parameters // SCALE, step_s=case.step_s / SCALE)


@pytest.mark.parametrize("way", PUBLISHED)
def test_a_way_takes_its_pinned_time(way: str) -> None:
    assert round(1e9 * outer.simulated_s(small(way))) == PINNED[way]


@pytest.mark.parametrize("way", PUBLISHED)
def test_the_formula_is_within_six_hundredths_of_the_simulation(way: str) -> None:
    """It leaves out queues at the switch and latencies of TCP, of which the small cases have as many as the large."""
    share = small(way).computing_s / (PINNED[way] / 1e9)
    assert share <= outer.computing_share(small(way)) + 1e-6
    assert outer.computing_share(small(way)) - share < 0.06


@pytest.mark.slow
def test_a_hundred_million_parameters_compute_for_the_asked_share() -> None:
    found = outer.simulated_s(PUBLISHED[WHOLE])
    assert round(1e9 * found) == WHOLE_NS
    assert PUBLISHED[WHOLE].computing_s / found >= outer.ASKED


def test_the_share_is_diloco_s_formula() -> None:
    """By hand: T = 3/4 of 2 x 32 Mbit at 10 Mbit/s, without headers and latency 4.8 s, beside 10 steps of 1 s."""
    case = OuterCase(nodes=4, parameters=10**6, step_s=1.0, every=10, delay_s=0.0)
    assert outer.exchange_s(case) == pytest.approx(4.8 / 0.956, rel=0.1)  # headers, acknowledgements
    taken = outer.exchange_s(case)
    assert outer.computing_share(case) == pytest.approx(10 / (10 + taken))
    streamed = replace(case, fragments=2, delay=2)
    assert outer.computing_share(streamed) == pytest.approx(10 / (10 + 2 * (outer.exchange_s(streamed) - 2)))


@pytest.mark.parametrize("way", PUBLISHED)
@pytest.mark.parametrize("share", [0.5, outer.ASKED])
def test_the_least_step_has_the_share(way: str, share: float) -> None:
    case = PUBLISHED[way]
    step_s = outer.least_step_s(case, share)
    assert outer.computing_share(replace(case, step_s=step_s)) == pytest.approx(share)


def test_messages_have_the_bits_of_sparseloco() -> None:
    method, count = gradients.get("sparseloco"), 4096 * 64
    gradient = np.random.default_rng(1).standard_normal(count, np.float32)
    method.average(MPI.COMM_SELF, {"w": gradient})
    assert 8 * method.stats.sent_bytes / count == pytest.approx(outer.SPARSELOCO_BITS, rel=0.01)


@pytest.mark.parametrize(
    "wrong",
    [{"nodes": 1}, {"step_s": 0.0}, {"rate_bps": -1.0}, {"parameters": 0}, {"fragments": 0}, {"fragments": 3},
     {"delay": 100}, {"delay": -1}, {"fragments": 4, "delay": 25}],
)  # fmt: skip
def test_impossible_cases_are_an_error(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"at least|fragments divide"):
        OuterCase(**wrong)  # type: ignore[arg-type]


def test_an_impossible_share_is_an_error() -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        outer.least_step_s(OuterCase(), 1.0)


def test_the_published_table_has_the_formulas_and_the_pinned_times() -> None:
    rows = [[each.strip() for each in line.split("|")[1:-1]] for line in PAGE.read_text().splitlines()]
    found = {row[0]: row[1:] for row in rows if row and row[0] in PUBLISHED and len(row) == 5}
    assert list(found) == list(PUBLISHED)
    for way, (exchange, formula, simulated, step) in found.items():
        case = PUBLISHED[way]
        assert exchange == f"{outer.exchange_s(case):.1f}"
        assert formula == f"{outer.computing_share(case):.3f}"
        assert step == f"{outer.least_step_s(case):.2f}"
        assert abs(float(simulated) - outer.computing_share(case)) < 0.05
    assert found[WHOLE][2] == f"{PUBLISHED[WHOLE].computing_s / (WHOLE_NS / 1e9):.3f}"


def test_the_command_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    command = "model outer --weights 100000 --step 100ms --rate 100mbit --every 20 --scale 1"
    assert commands.main(command.split()) == 0
    assert "rht:3, 4 fragments, 4 steps" in capsys.readouterr().out
    assert commands.main([*command.split(), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["case"]["exchange"] for row in found][:2] == ["", "rht:4"]
    assert all(0 < row["simulated"] <= 1 and abs(row["simulated"] - row["predicted"]) < 0.1 for row in found)
