"""Fixtures of the tests of links.

The tests of a module with `HOSTS = BOTH_FAMILIES` run once over each family of addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.link.sockets import HostStack


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    hosts = getattr(metafunc.module, "HOSTS", ())
    if hosts and "stack" in metafunc.fixturenames:
        metafunc.parametrize("stack", hosts, indirect=True)


@pytest.fixture
def stack(request: pytest.FixtureRequest) -> Iterator[ExitStack]:
    with HostStack(getattr(request, "param", "127.0.0.1")) as entered:
        yield entered
