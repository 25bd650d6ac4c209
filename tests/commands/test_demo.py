"""`softnic demo` on small jobs: figures of NICs and ranks, one-line failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softnic.experiments.demo import DemoRun
from softnic.experiments.demo import report as demo_report
from softnic.experiments.traffic import NicTraffic
from softnic.experiments.trainer import RankOutcome, TrainingPlan
from tests.experiments.test_data import write_mnist

Softnic = Callable[..., tuple[int, str, str]]

PARAMETERS = 65 * 500 + 3 * 501 * 500 + 501 * 10


def test_runs_differ_in_bytes_only(softnic: Softnic, tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    code, out, err = softnic("demo", "-n", "2", "--steps", "6", "--codec", "bounded:10", "--json", str(file))
    assert code == 0, err
    report = json.loads(file.read_text())
    assert (report["data"], report["nodes"], report["link"]) == ("digits", 2, {"rate": "1gbit", "delay": "50us"})
    assert report["plan"] == {"steps": 6, "batch": 25, "rate": 0.01, "momentum": 0.9, "seed": 7, "model": "hdc"}
    exact, bounded = report["runs"]
    assert (exact["codec"], bounded["codec"]) == ("exact", "bounded:10")
    # Two ranks send the whole vector once each, in halves.
    gradients = 6 * 2 * 4 * PARAMETERS
    for run in (exact, bounded):
        assert gradients <= run["traffic"]["original"] < 1.01 * gradients
        assert 0 < run["exchange_s"] < run["total_s"]
    assert exact["traffic"]["payload"] == exact["traffic"]["original"] < exact["traffic"]["wire"]
    assert (exact["ratio"], exact["speed_up"]) == (1, 1)
    assert bounded["ratio"] > 3
    assert bounded["traffic"]["wire"] < exact["traffic"]["wire"] / 3
    assert bounded["weights"] != exact["weights"]
    assert abs(bounded["loss"] - exact["loss"]) < 0.2
    rows = [line.split() for line in out.splitlines()]
    assert [row[0] for row in rows if row[:1] in (["exact"], ["bounded:10"])] == ["exact", "bounded:10"]


@pytest.mark.slow
def test_mnist_is_trained_and_captured(softnic: Softnic, tmp_path: Path) -> None:
    write_mnist(tmp_path, train=60, test=20, packed=True)
    capture = tmp_path / "demo.pcapng"
    code, out, err = softnic(
        *("demo", "-n", "2", "--steps", "1", "--batch", "5", "--data", str(tmp_path), "--codec", "inceptionn:10"),
        *("--json", "-", "--capture", str(capture)),
    )
    assert code == 0, err
    assert [run["codec"] for run in json.loads(out)["runs"]] == ["exact", "inceptionn:10"]
    code, out, err = softnic("inspect", str(capture), "--json", "-")
    assert code == 0, err
    assert "node0:wire" in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--data", "/nowhere"], "softnic demo: /nowhere: there is no such directory of IDX files"),
        (["--batch", "400"], "softnic demo: --batch 400: each of 4 nodes has 359 samples of digits"),
        (
            ["--json", "/nowhere/file", "-n", "1", "--steps", "1"],
            "softnic demo: /nowhere/file: No such file or directory",
        ),
    ],
)
def test_a_failure_is_one_line(softnic: Softnic, arguments: list[str], line: str) -> None:
    code, out, err = softnic("demo", *arguments)
    assert (code, out) == (1, "")
    assert err.splitlines() == [line]


def outcome(rank: int, exchange_s: float) -> RankOutcome:
    return RankOutcome(rank, 0.97, 0.1 * (rank + 1), exchange_s, 2 * exchange_s, 1000, "same")


def test_the_slowest_rank_determines_a_run() -> None:
    traffic = NicTraffic(original=700, payload=100, wire=120, frames=3)
    report = DemoRun.of("bounded:10", [outcome(0, 1.0), outcome(1, 1.5)], traffic)
    assert report == DemoRun("bounded:10", 0.97, (0.1 + 0.2) / 2, 1.5, 3.0, traffic, "same")
    exact = DemoRun.of("exact", [outcome(0, 6.0)], NicTraffic(700, 700, 800, 9))
    content: dict[str, Any] = report.as_json(exact)
    assert (content["ratio"], content["speed_up"]) == (7, 4)


def test_traffic_of_a_run_is_the_difference() -> None:
    assert NicTraffic(10, 8, 9, 5) - NicTraffic(4, 3, 2, 1) == NicTraffic(6, 5, 7, 4)
    assert NicTraffic(0, 0, 0, 0).ratio == 1


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    exact = DemoRun.of("exact", [outcome(0, 6.0)], NicTraffic(7_000_000, 7_000_000, 8_000_000, 9))
    faster = DemoRun("bounded:10", 0.975, 0.1, 1.5, 3.0, NicTraffic(7_000_000, 1_000_000, 1_100_000, 3), "x")
    demo_report("digits", TrainingPlan(steps=30), 4, {"rate": "1gbit"}, [exact, faster]).show()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["exact", "97.00%", "7.0", "MB", "7.0", "MB", "1.00", "6.00", "s", "1.00x", "0%"] in rows
    assert ["bounded:10", "97.50%", "7.0", "MB", "1.0", "MB", "7.00", "1.50", "s", "4.00x", "0%"] in rows
    words = "bounded:10: bytes / 7.0, exchange speed x 4.0, accuracy +0.50 points."
    assert words in [" ".join(row) for row in rows]
    assert "limit the run, not the network" in " ".join(word for row in rows for word in row)


def test_the_table_shows_what_limits_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """4 nodes that sent 2.4 GB in 6 s over 1 Gbit/s were busy for 80 % of the time; without a rate it is unknown."""
    exact = DemoRun.of("exact", [outcome(0, 6.0)], NicTraffic(2_300_000_000, 2_300_000_000, 2_400_000_000, 9))
    demo_report("digits", TrainingPlan(steps=30), 4, {"rate": "1gbit"}, [exact]).show()
    out = capsys.readouterr().out
    assert ["1.00x", "80%"] in [line.split()[-2:] for line in out.splitlines()]
    assert "limit the run" not in out
    demo_report("digits", TrainingPlan(steps=30), 4, {}, [exact]).show()
    assert "links busy" not in capsys.readouterr().out
