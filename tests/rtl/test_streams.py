"""AXI4-Stream under cocotb: pauses on all ports, packets back to back, malformed packets, resets amid packets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import needs
from tests.rtl.b_cases import CASES
from tests.rtl.b_engine import RTL, need_verilator, verilator_environment

SMALL = ("float_add_lanes",)
"""Engines that compile in seconds, with all their signals visible to cocotb. The others' streams are also tested, with
the same pauses, by the Verilated libraries of test_bfp.py, test_rht.py and test_ring_step.py."""


@pytest.mark.parametrize(
    "module", [pytest.param(name, marks=[] if name in SMALL else [pytest.mark.slow]) for name in CASES]
)
def test_streams(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_verilator()
    runners = needs.module("cocotb_tools.runner") if needs.is_installed("cocotb_tools") else needs.module("cocotb")
    for name, value in verilator_environment().items():
        monkeypatch.setenv(name, value)
    runner = runners.get_runner("verilator")
    runner.build(
        sources=[RTL / f"{module}.sv"],
        includes=[RTL],
        hdl_toplevel=module,
        build_dir=tmp_path,
        parameters={"DEPTH": 16} if module == "ring_step" else {},
        build_args=["-CFLAGS", "-O0", "--output-split", "0", "-fno-gate", "-fno-dfg"],
        timescale=("1ns", "1ps"),
        log_file=tmp_path / "build.log",
    )
    results = runner.test(
        hdl_toplevel=module,
        test_module="tests.rtl.b_cocotb",
        build_dir=tmp_path,
        test_dir=tmp_path,
        extra_env={"RTL_ENGINE": module},
        log_file=tmp_path / "test.log",
    )
    count, failed = runners.get_results(results)
    assert (count, failed) == (5, 0), (tmp_path / "test.log").read_text()[-20_000:]
