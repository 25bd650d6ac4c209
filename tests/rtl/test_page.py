"""docs/rtl.md has the kept counts of `python -m benchmarks.rtl`, and names every module of native/rtl.

`python -m tests.rtl.test_page` rewrites its table from docs/results/rtl.json.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.rtl import ENGINES, LONGEST, Row, counts, luts, total
from softnic.measure.pages import rebuilt
from softnic.measure.report import MeasurementReport, columns
from softnic.rtl import library

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rtl.md"
KEPT = ROOT / "docs" / "results" / "rtl.json"


def written() -> str:
    rows = [Row(**row) for row in json.loads(KEPT.read_text())["results"]]
    return rebuilt(PAGE.read_text(), {"rtl": MeasurementReport("rtl", "", columns(Row), rows, {}).markdown()})


def test_the_table_is_that_of_the_results() -> None:
    assert PAGE.read_text() == written(), "python -m tests.rtl.test_page"


def test_every_module_is_named_and_every_engine_counted() -> None:
    modules = {path.stem for path in library.sources().glob("*.sv")}
    assert modules - set(re.findall(r"`(\w+)`", PAGE.read_text())) == set()
    assert [row["engine"] for row in json.loads(KEPT.read_text())["results"]] == list(ENGINES)
    assert {engine.partition(",")[0] for engine in ENGINES} <= modules


def test_parameters_are_those_of_the_driver() -> None:
    listed = re.findall(r"^KERNELS\((\w+), \d+, (\d+), (\d+)\)$", (library.sources() / "driver.cpp").read_text(), re.M)
    found: dict[str, tuple[str, str]] = {}
    for names, first, last in re.findall(r"^\| (`.*`) \| (\d+)(?: to (\d+), all)? \|$", PAGE.read_text(), re.M):
        found |= dict.fromkeys(re.findall(r"`(\w+)`", names), (first, last or first))
    assert found == {codec: (lowest, highest) for codec, lowest, highest in listed}


def test_counts_are_read_from_yosys() -> None:
    cells = counts('{"design": {"num_cells_by_type": {"LUT2": 3, "LUT6": 4, "LUT6_2x": 9, "FDRE": 5, "RAM32M": 2}}}')
    assert (total(cells, r"LUT\d"), total(cells, r"FD[RSCP]E")) == (7, 5)
    assert luts({**cells, "SRL16E": 6, "SRLC32E": 1}) == 7 + 2 * 4 + 7
    found = LONGEST.search("Longest topological path in bounded_encoder (length=9):\n    0: \\k [3]")
    assert found is not None
    assert found[1] == "9"


if __name__ == "__main__":
    PAGE.write_text(written())
