"""INCEPTIONN's and the smart NIC's items from kept units, and claims as they follow from their results."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from benchmarks.papers import over_nics
from benchmarks.papers.claim import Results
from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import fig13, learning_curves, lossy, paper
from benchmarks.papers.item import Item, ValueTable
from benchmarks.papers.over_nics import Sample
from benchmarks.papers.units import Unit, made
from benchmarks.papers.verdicts import PAPERS
from softnic.experiments.timeline import WHOLE, Iteration, Phase, Span
from softnic.measure.kept import ResultFile
from softnic.measure.report import Value


def quiet(_what: str) -> None:
    pass


@pytest.mark.parametrize("here", [False, True])
def test_units_that_are_kept_are_not_made_again(here: bool, tmp_path: Path) -> None:
    path, given = tmp_path / "units.json", {"steps": 1}
    first = made(ResultFile(path), float, math.sqrt, {"a": Unit(given, (4.0,))}, quiet, here=here)
    assert first == {"a": 2.0}
    again = ResultFile(path)
    impossible = Unit(given, (-1.0,))
    both = made(again, float, math.sqrt, {"a": impossible, "b": Unit(given, (9.0,))}, quiet, here=here)
    assert both == {"a": 2.0, "b": 3.0}
    assert ResultFile(path).find("b", given, float) == 3.0
    with pytest.raises(ValueError, match="math domain"):
        made(again, float, math.sqrt, {"a": Unit({"steps": 2}, (-1.0,))}, quiet, here=here)


def test_an_exchange_over_nics_is_measured_once(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other items, and later runs, read it from the shared file."""
    measured: list[str] = []

    def measure(_context: Context, _given: Sample, strategy: str, _rounds: int) -> list[tuple[Iteration, ...]]:
        measured.append(strategy)
        spans = [Span(Phase.FORWARD, WHOLE, 0.0, 1.0), Span(Phase.EXCHANGE, WHOLE, 1.0, 2.5)]
        return [(Iteration(spans, {WHOLE: 1.0}),)]

    monkeypatch.setattr(over_nics, "iterations_over_nics", measure)
    for _ in range(2):
        run = dataclasses.replace(context, results=tmp_path, measured={})
        for _ in range(2):
            expected = float(f"{1.5 * over_nics.sample_size(run, 'hdc').scale:.6g}")  # as files keep it
            assert over_nics.over_nics(run, "hdc", "wa").exchange == pytest.approx(expected)
        monkeypatch.setattr(Context, "stages", None)  # gradients of a kept exchange are not made
    assert measured == ["wa"]
    assert (tmp_path / "inceptionn-times.json").exists()


@pytest.mark.parametrize("model", ["hdc", pytest.param("alexnet", marks=pytest.mark.slow)])
def test_a_samples_size_is_known_without_gradients(model: str, context: Context) -> None:
    size = over_nics.sample_size(context, model)
    given = over_nics.sample_of(context, model)
    assert given.rows[0].nbytes == size.row_bytes
    assert given.scale == pytest.approx(size.scale)


def test_small_networks_are_evaluated_on_their_way(context: Context) -> None:
    """The last evaluation is that of a training which is evaluated at its end alone."""
    own, loss = lossy.LossyPlan(6, 2, 0.02, tested=50), lossy.Loss(gradients="bounded:10")
    found = lossy.learning_curve(context.data_path, "alexnet", own, loss, 1, every=2)
    samples = len(context.data.train_labels)
    assert [epochs * samples for epochs, _ in found] == pytest.approx([16, 32, 48])
    assert found[-1][1] == lossy.train(context.data_path, "alexnet", own, loss, 1).accuracy


def test_fig13_has_small_networks_beside_hdc(context: Context) -> None:
    own = dataclasses.replace(context, models=("alexnet",))
    found = learning_curves.learning_curves(own, "alexnet")
    assert list(found.by_seed[1]) == ["WA", "INC", "INC+C", "INC+bounded:10", "INC+bounded:8"]
    assert found.by_seed[1]["INC"] == found.by_seed[1]["WA"]
    assert found.by_seed[1]["WA"][-1][0] == pytest.approx(learning_curves.FACTOR * found.epochs)
    first_half = [accuracy for epochs, accuracy in found.by_seed[1]["WA"] if epochs <= found.epochs + 1e-9]
    assert found.targets == [max(first_half)]


def test_an_exchange_that_one_seed_does_not_carry_has_no_mean() -> None:
    reached = fig13.ToAccuracy("INC+C", 3.0, 0.5, 0.98, 2.0, 1.5)
    missed = fig13.ToAccuracy("INC+C", None, None, 0.96)
    columns = ValueTable("", fig13.COLUMNS, []).headings
    both = dict(zip(columns, fig13.row("HDC", "INC+C", [reached, reached], [0.97, 0.97]), strict=True))
    assert both["seeds that reach it"] == "2 of 2"
    assert (both["epochs"], both["more than WA"], both["speed-up, measured"]) == (3.0, 0.5, 1.5)
    assert both["points of the target"] == pytest.approx(1.0)
    one = dict(zip(columns, fig13.row("HDC", "INC+C", [reached, missed], [0.97, 0.97]), strict=True))
    assert one["seeds that reach it"] == "1 of 2"
    assert one["epochs"] is one["more than WA"] is one["speed-up, measured"] is None
    assert one["points of the target"] == pytest.approx(0.0)


Rows = list[list[Value]]
TIMES = "model | exchange | speed-up [.2f] | less exchange (%) [.1f]"


def results(saved: float, faster: float, snappy: float, more: float | None, two_bits: float) -> Results:
    titles = list(paper.TITLES.values())
    times: Rows = [[title, exchange, faster, 100 * saved] for title in titles for exchange in ("INC", "INC+C")]
    software: Rows = [
        [title, name, factor] for title in titles[:2] for name, factor in (("Snappy", snappy), ("SZ3", 2.5))
    ]
    share: Rows = [[title, "communicate", 60.0 + 5 * index] for index, title in enumerate(titles)]
    bits: Rows = [[title, f"2^-{k}", two_bits, 6.0] for title in titles for k in paper.BOUNDS]
    items = {
        "inceptionn fig12": [ValueTable("", TIMES, times, name) for name in ("measured", "virtual")],
        "inceptionn fig7": [ValueTable("", "model | compressor | times Base", software)],
        "inceptionn table2": [ValueTable("", "model | step | here %", share)],
        "inceptionn table3": [
            ValueTable("", "model | bound | 2-bit | ratio", bits),
            ValueTable("", "k | times 2^-k", [[10, 8.0], [8, 2.0], [6, 1.0]], "swept"),
        ],
        "inceptionn fig13": [
            ValueTable(
                "",
                "model | exchange | more than WA | points of the target | ±",
                [["HDC", "INC+C", more, -0.5, 0.1], ["AlexNet", "INC+C", None, -0.2, 0.1]],
            )
        ],
    }
    return Results({name: Item("", tables) for name, tables in items.items()})


PLACES = ("Alg. 2", "Fig. 7", "Table II", "Table III", "Fig. 12", "abstract", "Fig. 13", "Fig. 14a")


@pytest.mark.parametrize(
    ("given", "verdicts"),
    [
        (
            (0.5, 2.5, 2.0, 1.0, 80.0),
            ["refuted", "confirmed", "in part", *["confirmed"] * 2, *["in part", "confirmed"] * 2],
        ),
        (
            (0.75, 2.5, 2.0, 1.0, 80.0),
            ["refuted", "confirmed", "in part", "confirmed", "in part", *["confirmed"] * 2, "in part", "confirmed"],
        ),
        (
            (-0.1, 0.9, 1.2, None, 50.0),
            ["refuted", "in part", "in part", "in part", "refuted", "refuted", "refuted", "not seen", "confirmed"],
        ),
    ],
)
def test_claims_follow_the_results(given: tuple[float, float, float, float | None, float], verdicts: list[str]) -> None:
    found = [claim.cells(results(*given)) for claim in PAPERS["inceptionn"] if claim.place in PLACES]
    assert [cells[4].strip("*") for cells in found] == verdicts
    by_place = {cells[0]: cells[3] for cells in found}
    assert by_place["Alg. 2"] == "up to 8.0, 2.0, 1.0 times the bound"
    assert by_place["Fig. 7"] == f"Snappy {given[2]:.2f} and {given[2]:.2f}, SZ3 2.50 and 2.50 (AlexNet and HDC)"
    assert by_place["Table II"] == "60, 65, 70, 75 % (AlexNet, HDC, ResNet-50, VGG-16)"
    assert "AlexNet not with every seed, at best -0.20 ± 0.10 points of the target" in by_place["Fig. 13"]
    missed = "HDC not with every seed, at best -0.50 ± 0.10 points of the target"
    assert (missed if given[3] is None else "HDC +1.00 epochs") in by_place["Fig. 13"]


def test_measured_nics_are_beside_virtual_time_once_they_are_there() -> None:
    rows: Rows = [
        ["NIC: exposed all-reduce", 20.0],
        ["NIC: iteration", 16.0],
        ["NIC+BFP: exposed all-reduce", 20.0],
        ["NIC+BFP: iteration", -14.0],
    ]
    virtual: Rows = [
        [448, f"{nic}: less {what}", 0.4] for nic in ("NIC", "NIC+BFP") for what in ("exposed", "in total")
    ]
    kept = {"smartnic iterations": Item("", [ValueTable("", "batch | what | here", virtual, "paper")])}
    measured = {"smartnic fig4": Item("", [ValueTable("", "less than overlapped by the host (%) | here", rows)])}
    [claim] = [claim for claim in PAPERS["smartnic"] if claim.place == "Fig. 4a"]
    assert claim.cells(Results(kept))[3] == "40 % and 40 %; with BFP 40 % and 40 % (virtual time)"
    assert claim.cells(Results({**kept, **measured}))[3].endswith(
        "; over NICs that share two cores 20 % less and 16 % less, with BFP 20 % less and 14 % more"
    )
