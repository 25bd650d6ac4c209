"""Names of services, for ports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from softnic import MPI


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOFTNIC_NAMES", str(tmp_path / "names"))
    return tmp_path / "names"


def test_a_name_is_found_until_it_is_removed() -> None:
    MPI.Publish_name("train / 1", "10.77.0.1:7000")
    assert MPI.Lookup_name("train / 1") == "10.77.0.1:7000"
    with pytest.raises(MPI.Exception, match="published already") as twice:
        MPI.Publish_name("train / 1", "10.77.0.1:7001")
    assert twice.value.Get_error_class() == MPI.ERR_SERVICE
    with pytest.raises(MPI.Exception) as other:
        MPI.Unpublish_name("train / 1", "10.77.0.1:7001")
    assert other.value.Get_error_class() == MPI.ERR_SERVICE
    MPI.Unpublish_name("train / 1", "10.77.0.1:7000")
    with pytest.raises(MPI.Exception, match="nobody has published 'train / 1'") as gone:
        MPI.Lookup_name("train / 1")
    assert gone.value.Get_error_class() == MPI.ERR_NAME
    with pytest.raises(MPI.Exception):
        MPI.Unpublish_name("train / 1", "10.77.0.1:7000")


def test_what_an_ended_process_leaves_behind_is_replaced() -> None:
    program = "from softnic import MPI; MPI.Publish_name('service', '10.77.0.9:1')"
    subprocess.run([sys.executable, "-c", program], env=dict(os.environ), check=True, timeout=60)
    assert MPI.Lookup_name("service") == "10.77.0.9:1"
    MPI.Publish_name("service", "10.77.0.1:2")
    assert MPI.Lookup_name("service") == "10.77.0.1:2"


@pytest.mark.parametrize("name", ["", "..", "x" * 300])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(MPI.Exception, match="is no name of a service"):
        MPI.Publish_name(name, "10.77.0.1:1")


def test_a_file_that_is_nonsense(folder: Path) -> None:
    folder.mkdir()
    (folder / "service").write_bytes(b"\xff\xfe")
    with pytest.raises(MPI.Exception) as found:
        MPI.Lookup_name("service")
    assert found.value.Get_error_class() == MPI.ERR_NAME
    MPI.Publish_name("service", "10.77.0.1:1")
    assert MPI.Lookup_name("service") == "10.77.0.1:1"
