from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon.nics import LINKS, Nic, nothing_kept, running


@pytest.fixture(scope="package")
def nics(request: pytest.FixtureRequest) -> Iterator[list[Nic]]:
    """Two nodes, on the requested link of LINKS, shared by tests that leave them unchanged."""
    link = LINKS[getattr(request, "param", "loopback")]
    with running(2, "--offload", "0x28=bounded:10", *link) as started:
        yield started


@pytest.fixture(scope="package")
def named() -> Iterator[list[Nic]]:
    """Two nodes that know each other's names, for programs that tests run on them."""
    hosts = [flag for number in range(2) for flag in ("--host", f"node{number}=10.77.0.{number + 1}")]
    with running(2, *hosts) as started:
        yield started


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs the tests of a module with QUICK_ON_LINKS on every link; off loopback, those not listed are marked slow."""
    quick = getattr(metafunc.module, "QUICK_ON_LINKS", None)
    if quick is not None and "nics" in metafunc.fixturenames:
        slow = () if metafunc.function.__name__ in quick else (pytest.mark.slow,)
        links = [pytest.param(link, marks=slow if flags else ()) for link, flags in LINKS.items()]
        metafunc.parametrize("nics", links, indirect=True)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    with nothing_kept():
        yield
