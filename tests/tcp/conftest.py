"""Fixtures of the tests of TCP."""

import pytest

from tests.tcp.script import Script


@pytest.fixture
def script() -> Script:
    """Return a host with the default configuration and a scripted peer."""
    return Script()
