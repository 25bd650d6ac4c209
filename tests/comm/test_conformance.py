"""The runner of mpi4py's tests: what it skips, and how it puts together what ranks say."""

from __future__ import annotations

import json
import unittest

from tests.comm import conformance
from tests.comm.conformance import MARK, Outcome


class Sample(unittest.TestCase):
    __test__ = False  # the functions below are the tests
    COMM = None

    def test_of_what_there_is(self) -> None:
        self.COMM.Bcast(None)  # type: ignore[attr-defined]

    def test_of_what_there_is_not(self) -> None:
        self.COMM.Gather(self.COMM.Get_rank())  # type: ignore[attr-defined]

    def test_of_an_error_class(self) -> None:
        ValueError().Get_error_class()  # type: ignore[attr-defined]


class Derived(Sample):
    def test_of_what_there_is_not(self) -> None:
        super().test_of_what_there_is_not()


def test_a_test_is_skipped_for_what_it_calls() -> None:
    assert conformance.reason_to_skip(Sample("test_of_what_there_is")) == ""
    for case in (Sample, Derived):
        assert conformance.reason_to_skip(case("test_of_what_there_is_not")) == "there is no Gather"
    assert "no error class" in conformance.reason_to_skip(Sample("test_of_an_error_class"))


def test_what_all_ranks_say_of_a_test() -> None:
    def log(**outcomes: str) -> str:
        return "noise\n" + "".join(f"{MARK}{json.dumps([name, result, ''])}\n" for name, result in outcomes.items())

    both = conformance.worst([log(a="passed", b="passed", c="skipped"), log(a="passed", b="failed", c="skipped")])
    assert both == {"a": Outcome("passed"), "b": Outcome("failed"), "c": Outcome("skipped")}
    assert conformance.worst([log(a="passed"), ""])["a"] == Outcome("failed", "a rank has ended before it")
