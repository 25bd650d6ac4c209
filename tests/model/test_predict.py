"""Predictions, parameters, the chart and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from softnic import commands
from softnic.model import chart, layers, parameters, predict
from softnic.model.parameters import PAPER, CodecFigures, Machine
from softnic.model.predict import Prediction, TrainingSetup
from tests import needs

MLP = layers.network("mlp20")


def rows(machine: Machine = PAPER, **options: object) -> dict[tuple[str, int], Prediction]:
    plan = TrainingSetup(**{"network": MLP, "batch": 448, "rate_bps": 40e9, "nodes": (1, 6, 32), **options})  # type: ignore[arg-type]
    return {(row.strategy, row.nodes): row for row in predict.predict(plan, machine)}


def test_one_node_takes_the_same_in_all_strategies_and_exchanges_nothing() -> None:
    found = [row for (_, nodes), row in rows().items() if nodes == 1]
    assert len(found) == len(predict.STRATEGIES)
    assert {row.iteration.total_s for row in found} == {found[0].iteration.total_s}
    assert all(row.exchange_s == 0 and row.scaling == pytest.approx(1) for row in found)


def test_figure_4a_of_the_paper_is_reproduced() -> None:
    """6 nodes, B = 448: 18 % less with the NIC than with the host at 100 Gbit/s, and 40 % less with BFP."""
    nics = rows()
    baseline = rows(rate_bps=100e9)["host", 6].iteration.total_s
    assert nics["nic", 6].iteration.total_s == pytest.approx(0.82 * baseline, rel=0.03)
    assert nics["nic+c", 6].iteration.total_s == pytest.approx(0.60 * baseline, rel=0.03)


def test_large_batches_hide_the_exchange_as_the_paper_says() -> None:
    """B = 1792: ideal scaling with the NIC, with or without BFP."""
    found = rows(batch=1792)
    assert found["nic", 32].scaling > 0.97 * 32
    assert found["nic+c", 32].scaling == pytest.approx(found["nic", 32].scaling, rel=0.02)


def test_the_exposed_exchange_is_the_rest_of_the_total() -> None:
    for row in rows().values():
        parts = row.iteration
        assert parts.total_s == parts.forward_s + parts.backward_s + parts.exposed_s + parts.update_s
        assert 0 <= parts.exposed_s <= row.exchange_s * (1 + 1e-9)


def test_a_nic_slower_than_the_link_is_the_limit_by_default() -> None:
    slow = replace(PAPER, stream_bytes_s=1e8)
    limited = rows(slow)["ring", 6].exchange_s
    assert limited > 10 * rows(slow, nic_limit=False)["ring", 6].exchange_s
    assert rows(slow, nic_limit=False) == rows()


def test_sums_that_compress_less_make_the_exchange_longer() -> None:
    figures = PAPER.codecs["bfp:7"]
    worse = replace(PAPER, codecs={"bfp:7": replace(figures, betas=(3.8, 1.9))})
    assert rows(worse)["ring+c", 32].exchange_s > 1.2 * rows()["ring+c", 32].exchange_s
    assert rows(worse)["wa+c", 32].exchange_s == rows()["wa+c", 32].exchange_s


def test_ratios_between_measured_sums() -> None:
    figures = CodecFigures(betas=(4.0, 3.0, 2.0), alpha=1.0, encode_bytes_s=1.0, decode_bytes_s=1.0)
    assert [figures.beta(k) for k in (1, 2, 4, 1024)] == [4.0, 3.0, 2.0, 2.0]
    assert 3.0 > figures.beta(3) > 2.0


def test_a_codec_without_figures_is_an_error_with_advice() -> None:
    with pytest.raises(ValueError, match="calibrate --codec bounded:8"):
        rows(codec="bounded:8")


def test_a_given_time_of_computation_stands_for_this_machines() -> None:
    """Whatever the machine computes in a second, and however long its updates take."""
    slow = replace(PAPER, P_Worker=PAPER.P_Worker / 1000, update_bytes_s=PAPER.update_bytes_s / 1000)
    found = rows(compute_s=0.12)
    assert rows(slow, compute_s=0.12) == found
    alone = found["ring", 1].iteration
    assert alone.total_s == pytest.approx(0.12)
    assert alone.update_s == 0
    assert alone.backward_s == pytest.approx(2 * alone.forward_s)
    assert found["ring", 6].iteration.total_s == pytest.approx(0.12 + rows()["ring", 6].exchange_s)
    assert rows(compute_s=None) == rows()


@pytest.mark.parametrize(
    "wrong",
    [
        {"compute_s": 0.0},
        {"compute_s": -1.0},
        {"nodes": ()},
        {"nodes": (0,)},
        {"batch": 0},
        {"network": ()},
        {"strategies": ("x",)},
    ],
)
def test_impossible_setups_are_an_error(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"at least|no strategy|more than 0"):
        rows(**wrong)  # type: ignore[arg-type]


# Parameters


def test_parameters_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "machine.json"
    parameters.save(PAPER, path)
    assert parameters.load(path) == PAPER


@pytest.mark.parametrize("change", [{"P_Worker": 0}, {"alpha": "much"}, {"latency_s": -1}, {"codecs": {"a": {}}}])
def test_damaged_parameters_are_an_error_with_the_files_name(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "machine.json"
    path.write_bytes(msgspec.json.encode({**msgspec.to_builtins(PAPER), **change}))
    with pytest.raises(ValueError, match=r"machine\.json"):
        parameters.load(path)


def test_the_file_is_under_xdg_config_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert parameters.default_path() == tmp_path / "softnic" / "machine.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert parameters.default_path() == Path("/home/someone/.config/softnic/machine.json")


# The picture


def test_the_chart_has_every_strategy_and_ideal_scaling_is_its_diagonal() -> None:
    lines = chart.text(list(rows(nodes=(1, 2, 4, 8)).values()), width=9, height=3).splitlines()
    assert lines[0].endswith("g") or lines[0].endswith(".")
    assert "a wa, b wa+c, c ring, d ring+c, e host, f nic, g nic+c, . ideal" in lines[-1]
    assert lines[-2].split() == ["1", "nodes", "8"]


def test_the_png_is_a_png(tmp_path: Path) -> None:
    needs.module("matplotlib")
    chart.png(list(rows().values()), tmp_path / "scaling.png", "title")
    assert (tmp_path / "scaling.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


# The command


def test_predict_prints_a_row_for_each_number_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "model predict --parameters paper --batch 448 --rate 40gbit --nodes 1,6 --strategy nic --strategy nic+c"
    assert commands.main(arguments.split()) == 0
    out = capsys.readouterr().out
    assert "105.3 (1)" in out
    assert out.splitlines()[-1].endswith("a nic, b nic+c, . ideal")


def test_predict_as_json_has_the_breakdown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_text('[{"parameters": 1000000}, {"parameters": 2000000}]')
    command = f"model predict --parameters paper --layers {path} --nodes 4 --strategy ring --json -"
    assert commands.main(command.split()) == 0
    (row,) = json.loads(capsys.readouterr().out)["predictions"]
    assert row["nodes"] == 4
    assert row["iteration"]["exposed_s"] == row["exchange_s"] > 0


def test_predict_without_parameters_is_an_error_with_advice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert commands.main(["model", "predict"]) == 1
    assert "run softnic model calibrate" in capsys.readouterr().err


def test_calibrate_writes_what_predict_reads(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    command = f"model calibrate --no-nics --rounds 1 --codec bounded:10 --out {path}"
    assert commands.main(command.split()) == 0
    machine = parameters.load(path)
    assert machine.P_Worker > 1e6
    assert 0.95 < machine.alpha < 0.96
    betas = machine.codecs["bounded:10"].betas
    assert betas[0] > betas[-1] > 1
    assert commands.main(f"model predict --parameters {path} --codec bounded:10 --nodes 2".split()) == 0
    assert "bounded:10" in capsys.readouterr().out


def test_check_prints_predicted_beside_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["model", "check", "--nodes", "2", "--strategy", "nic+c", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found] == ["mlp 3 x 512", "hdc", "alexnet / 32"]
    assert all(abs(row["error"]) < 0.03 for row in found)
