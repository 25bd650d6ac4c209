"""Registered memory: control requests sent directly to real daemons."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import softnic
from softnic.ipc import control
from softnic.ipc import regions as memory
from tests.daemon.nics import Nic, running

Floats = npt.NDArray[np.float32]


@pytest.fixture(autouse=True)
def _no_arrays_of_other_tests() -> None:
    """Collect tracebacks of earlier tests, which keep their arrays registered."""
    gc.collect()


def number(array: Floats, nic: Nic) -> int:
    place = memory.find(array.view(np.uint8).data)
    assert place is not None
    assert place.offset == 0
    return memory.number(place.region, nic.path)


@pytest.mark.parametrize("sealed", [False, True])
def test_only_a_memfd_that_cannot_shrink_is_mapped(nics: list[Nic], sealed: bool) -> None:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    with nics[0].client() as client, os.fdopen(descriptor, "wb") as file:
        if sealed:  # but empty
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        else:
            file.truncate(4096)
        with pytest.raises(OSError, match="empty" if sealed else "F_SEAL_SHRINK") as caught:
            client.call(control.Register(), file.fileno())
    assert caught.value.errno == errno.EINVAL


def test_other_descriptors_are_refused(nics: list[Nic]) -> None:
    reader, writer = os.pipe()
    with nics[0].client() as client, os.fdopen(reader), os.fdopen(writer, "w"), Path(sys.executable).open() as program:
        for descriptor in (reader, program.fileno()):
            with pytest.raises(OSError, match="F_SEAL_SHRINK"):
                client.call(control.Register(), descriptor)
        with pytest.raises(OSError, match="missing"):
            client.call(control.Register())
        with pytest.raises(OSError, match="no region"):
            client.call(control.Unregister(7))


def test_a_region_larger_than_the_machine_is_refused(nics: list[Nic]) -> None:
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + 4096
    array = softnic.empty(size, np.uint8)  # no page of it is ever touched
    place = memory.find(array[:10].data)
    assert place is not None
    with pytest.raises(OSError, match="more than this machine has") as caught:
        memory.number(place.region, nics[0].path)
    assert caught.value.errno == errno.ENOMEM


def test_a_region_of_another_program_cannot_be_taken_back(nics: list[Nic]) -> None:
    array = softnic.zeros(1000)
    region = number(array, nics[0])
    with nics[0].client() as client, pytest.raises(OSError, match="of this program"):
        client.call(control.Unregister(region))


def test_regions_end_with_their_arrays(nics: list[Nic]) -> None:
    before = nics[0].counters()
    arrays = [softnic.zeros(1000 * (index + 1)) for index in range(5)]
    assert len({number(array, nics[0]) for array in arrays}) == 5
    counters = nics[0].counters()
    assert counters["regions"] - before["regions"] == 5
    assert counters["region_bytes"] - before["region_bytes"] == 60_000
    arrays.clear()
    assert nics[0].counters()["regions"] == before["regions"]
    assert nics[0].counters()["region_bytes"] == before["region_bytes"]


def test_regions_are_registered_again_with_a_restarted_nic() -> None:
    array = softnic.zeros(1000)
    with running(1) as [nic]:
        first = number(array, nic)
        assert number(array, nic) == first
        assert nic.stop() == 0
        with pytest.raises(OSError, match=r"no NIC answers|is gone"):
            number(softnic.zeros(10), nic)
        nic.start()
        assert number(array, nic) != first
        assert nic.counters()["regions"] == 1
