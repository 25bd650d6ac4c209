"""`softnic key` without a NIC; with NICs: tests/daemon/test_identities.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from softnic.commands import main
from softnic.link.secure.identity import key_text, read_identity


@pytest.fixture(autouse=True)
def no_nic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFTNIC_NIC", raising=False)


def test_a_key_is_made_shown_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "node.key"
    assert main(["key", "new", str(file)]) == 0
    first = capsys.readouterr().out
    assert main(["key", "public", str(file)]) == 0
    assert capsys.readouterr().out == first
    assert main(["key", "rotate", str(file)]) == 0
    newer, older = capsys.readouterr().out.split()
    assert older == first.strip() != newer
    assert [key_text(key) for key in read_identity(str(file)).public] == [newer, older]


def test_a_file_is_never_replaced_by_a_new_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "node.key"
    file.write_text("mine")
    assert main(["key", "new", str(file)]) == 1
    assert capsys.readouterr().err == f"softnic key: {file} exists: softnic key rotate replaces its key\n"
    assert file.read_text() == "mine"


def test_a_rotation_that_its_nic_cannot_follow_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.key"
    main(["key", "new", str(file)])
    before = file.read_text()
    assert main(["key", "rotate", str(file), "--nic", str(tmp_path / "none.sock")]) == 1
    assert "no NIC answers at" in capsys.readouterr().err
    assert file.read_text() == before


@pytest.mark.parametrize("action", [["revoke", "KEY"], ["accept", "10.77.0.2", "KEY"]])
def test_a_nic_is_to_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], action: list[str]) -> None:
    main(["key", "new", str(tmp_path / "x")])
    key = capsys.readouterr().out.strip()
    assert main(["key", *[key if each == "KEY" else each for each in action]]) == 1
    assert "no NIC given" in capsys.readouterr().err
    assert main(["key", *action, "--nic", "x"]) == 1
    assert "is not a public key" in capsys.readouterr().err
