"""CPython's own tests of sockets, ssl, ftplib and asyncio over a NIC (conformance.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import needs
from tests.daemon import conformance
from tests.daemon.conformance_known import EITHER, EXPECTED, SUITES

DOCS = Path(__file__).resolve().parents[2] / "docs" / "sockets.md"


def has_pythons_tests() -> bool:
    try:
        return needs.is_installed("test.test_socket")
    except ModuleNotFoundError:  # not even the package `test`
        return False


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_only_known_tests_fail(suite: str) -> None:
    if not has_pythons_tests():
        needs.skip("Python's own tests are not installed (apt-get install libpython3-testsuite)")
    if sys.version_info[:2] != conformance.PYTHON:
        needs.skip(f"what is known of Python's tests is known of those of {'.'.join(map(str, conformance.PYTHON))}")
    outcomes = conformance.run(suites=[suite])
    assert outcomes
    assert not conformance.unexpected(outcomes)


def test_the_documentation_lists_every_reason() -> None:
    text = " ".join(DOCS.read_text().split())
    missing = [reason for reason in {**EXPECTED, **EITHER}.values() if reason not in text]
    assert not missing
