"""The runner of mpi4py's tests, on tests of its own."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from tests.mpi import conformance
from tests.mpi.conformance import Outcome

TESTS = """
import os, time, unittest
from mpi4py import MPI

comm = MPI.COMM_WORLD

class TestRanks(unittest.TestCase):
    kept = []

    def test_1_all(self):
        self.assertEqual(comm.allreduce(comm.rank), 1)
        self.kept.append(1)

    def test_2_one_fails(self):
        self.assertEqual(comm.rank, 0)

    def test_3_the_same_interpreter(self):
        self.assertEqual(self.kept, [1])

    @unittest.skip("not wanted")
    def test_4_skipped(self):
        raise AssertionError

    def test_5_one_skips(self):
        if comm.rank == 1:
            self.skipTest("a rank of two")

    def test_6_one_waits(self):
        while comm.rank == 0:
            time.sleep(0.01)

    def test_7_one_ends(self):
        if comm.rank == 1:
            os._exit(3)

    def test_8_after_that(self):
        self.assertEqual((self.kept, comm.allreduce(comm.rank)), ([], 1))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a folder with tests as mpi4py's source distribution has it."""
    place = tmp_path / "test"
    place.mkdir()
    (place / "test_ranks.py").write_text(TESTS)
    (place / "test_broken.py").write_text("from mpi4py.MPI import nothing")
    (place / "test_win.py").write_text("raise SystemExit('it is excluded')")
    return place


def test_what_comes_of_tests_on_two_ranks(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(directory=directory, modules=[], only="", limit=8.0, restart=False, verbose=False)
    found = conformance.run(options, 2)
    assert {name.split(".")[-1]: outcome.result for name, outcome in found.items()} == {
        "load": "failed",
        "test_1_all": "passed",
        "test_2_one_fails": "failed",
        "test_3_the_same_interpreter": "passed",
        "test_4_skipped": "skipped",
        "test_5_one_skips": "passed",
        "test_6_one_waits": "hung",
        "test_7_one_ends": "failed",
        "test_8_after_that": "passed",
    }
    assert "cannot import name 'nothing'" in found["test_broken.load"].why
    assert "1 != 0" in found["test_ranks.TestRanks.test_2_one_fails"].why
    assert found["test_ranks.TestRanks.test_4_skipped"] == Outcome("skipped", "not wanted")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == ("2 ranks: 4 passed, 3 failed, 1 hung, 1 skipped; 50.0 % of 8 run not passed; ranks started 2 times")


HEAT_TESTS = "SOFTNIC_HEAT_TESTS"
"""Names the folder `tests/core` of the source of the heat that is installed: its packages come without tests."""
HEAT_FAILURES: dict[str, str] = {}
"""By name, why a test of heat 1.8's communication does not pass. All do."""


@pytest.mark.slow
def test_heats_communication_on_three_ranks() -> None:
    if not (folder := os.environ.get(HEAT_TESTS, "")):
        pytest.skip(f"{HEAT_TESTS} is not set to tests/core of heat's source; docs/mpi4py.md says how to run its tests")
    pytest.importorskip("heat")
    options = argparse.Namespace(
        directory=Path(folder), modules=["communication"], only="", limit=60.0, restart=False, verbose=False
    )
    found = conformance.run(options, 3)
    wrong = {name: outcome.why for name, outcome in found.items() if outcome.result in ("failed", "hung")}
    assert set(wrong) == set(HEAT_FAILURES), wrong
    assert sum(outcome.result == "passed" for outcome in found.values()) > 40
