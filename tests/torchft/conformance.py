"""Runs modules of torchft's own tests with ProcessGroupSoftnic in place of ProcessGroupGloo.

    python -m tests.torchft.conformance MODULE [NAME ...]

Prints a line of RESULT and JSON: the names of the tests that have passed and been skipped, and the last line of the
errors of those that have failed, by name.
"""

from __future__ import annotations

import importlib
import json
import sys
import unittest
from typing import Any

import torchft
import torchft.process_group

from softnic.torchft import ProcessGroupSoftnic


class Recorded(unittest.TextTestResult):
    """Keeps the names of tests that have passed."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.passed: list[str] = []

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.passed.append(test.id())


def main() -> None:
    module, names = sys.argv[1], sys.argv[2:]
    for place in (torchft, torchft.process_group):
        place.ProcessGroupGloo = ProcessGroupSoftnic
    loader = unittest.defaultTestLoader
    loaded = importlib.import_module(module)
    assert getattr(loaded, "ProcessGroupGloo", ProcessGroupSoftnic) is ProcessGroupSoftnic, "imported before"
    suite = loader.loadTestsFromNames(names, loaded) if names else loader.loadTestsFromModule(loaded)
    result = unittest.TextTestRunner(resultclass=Recorded, verbosity=2).run(suite)
    assert isinstance(result, Recorded)
    failed = {test.id(): text.strip().splitlines()[-1] for test, text in (*result.failures, *result.errors)}
    skipped = [test.id() for test, _ in result.skipped]
    print("\nRESULT " + json.dumps({"passed": result.passed, "skipped": skipped, "failed": failed}), flush=True)


if __name__ == "__main__":
    main()
