"""Parameters of the prototype with the engines' cycles: the constants are those that the engines' tests assert."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from softnic import commands
from softnic.codecs import get
from softnic.model import layers, predict, smartnic
from softnic.model.parameters import BEAT_BYTES, BLOCK_BYTES, CLOCK_HZ, ENGINES, PAPER, STEP_CYCLES, Machine
from tests.rtl.test_ring_step import LATENCY, MIDDLE

PLAN = predict.TrainingSetup(network=layers.network("mlp20"), batch=448, rate_bps=40e9, nodes=(6,))
PAGE = (Path(__file__).parents[2] / "docs" / "model.md").read_text()


def milliseconds(machine: Machine) -> dict[str, float]:
    """The rows of the page's table."""
    system, layer = predict.system_of(PLAN, machine, 6, "bfp:7"), PLAN.network[5]
    parts = (smartnic.T_ring, smartnic.T_add, smartnic.T_codec, smartnic.T_mem)
    totals = {row.strategy: 1e3 * row.iteration.total_s for row in predict.predict(PLAN, machine)}
    return {part.__name__: 1e3 * part(layer, system) for part in parts} | totals


def test_constants_are_those_of_the_engines() -> None:
    assert LATENCY[MIDDLE] == STEP_CYCLES
    engine = (Path(__file__).parents[2] / "native" / "rtl" / "bfp_encoder.sv").read_text()
    assert f"[{8 * BEAT_BYTES - 1}:0] s_axis_tdata" in engine
    block = np.linspace(-1, 1, BEAT_BYTES // 4, dtype=np.float32)
    assert len(get("bfp:7").encode(block)) == BLOCK_BYTES


def test_the_page_has_what_changes() -> None:
    paper, engines = milliseconds(PAPER), milliseconds(ENGINES)
    rows = re.findall(
        r"^\| (?:`nic\+c`: )?(T_\w+|iteration with `[^`]+`)[^|]*\| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE
    )
    assert len(rows) == 7
    for name, *figures in rows:
        key, digits = (name, 3) if name.startswith("T_") else (name.split("`")[1], 1)
        assert figures == [f"{each[key]:.{digits}f}" for each in (paper, engines)], name


def test_pcie_limits_both_and_the_next_limit_moves() -> None:
    for machine, second in ((PAPER, "T_add"), (ENGINES, "T_codec")):
        found = milliseconds(machine)
        order = sorted((name for name in found if name.startswith("T_")), key=lambda name: found[name])
        assert order[-2:] == [second, "T_mem"]
    assert 40e9 / 8 / BLOCK_BYTES > CLOCK_HZ, "blocks of a link a second, and those of an engine"
    assert f"{40e9 / 8 / BLOCK_BYTES / 1e6:.0f} MHz" in PAGE


def test_the_command_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--network", "mlp20", "--batch", "448", "--rate", "40gbit", "--nodes", "6", "--strategy", "ring+c"]
    assert commands.main(["model", "predict", "--parameters", "engines", *arguments, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["machine"]["nic_add_bytes_s"] == BEAT_BYTES * CLOCK_HZ
    parts = found["predictions"][0]["iteration"].values()
    assert 1e3 * sum(parts) == pytest.approx(milliseconds(ENGINES)["ring+c"])
