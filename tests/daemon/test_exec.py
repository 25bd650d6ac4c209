"""`softnic exec` and `softnic.install()`: names, tags, sockets that change processes, errors of the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from softnic import codecs, socket
from tests import needs
from tests.daemon.nics import WAIT_S, Nic, read_all

FOLDER = Path(__file__).parent / "programs"
COMMAND = [sys.executable, "-m", "softnic", "exec"]
LAYERS = ["exec", "install"]


def launch(layer: str, nic: Nic, program: str, *args: str, tag: str = "") -> subprocess.Popen[str]:
    """Starts a program of the folder, which itself calls `softnic.install()`."""
    environment = {**os.environ, "SOFTNIC_NIC": nic.path}
    if layer == "install" and tag:
        environment["SOFTNIC_TAGS"] = tag
    launcher = [*COMMAND, *(["--tag", tag] if tag else []), "--"] if layer == "exec" else []
    command = [*launcher, sys.executable, str(FOLDER / program), *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("program", ["names.py", "handover.py"])
def test_a_program_has_a_nic_s_sockets(named: list[Nic], layer: str, program: str) -> None:
    with launch(layer, named[0], program) as process:
        output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, output


def test_tags_apply_to_programs_that_know_nothing_of_them(named: list[Nic]) -> None:
    sent = np.array([0.7 / (1 + number) for number in range(4096)], np.float32)
    coded = codecs.get("bounded:10")
    expected = coded.decode(coded.encode(sent), len(sent))
    assert not np.array_equal(expected, sent)
    for layer in LAYERS:
        with named[1].server() as listening:
            port = listening.getsockname()[1]
            tag = f"{port}=bounded:10" if layer == "exec" else f"{port}=bounded:10,6000=bounded:10"
            with launch(layer, named[0], "floats.py", str(port), tag=tag) as process:
                accepted, _ = listening.accept()
                with accepted:
                    assert np.array_equal(np.frombuffer(read_all(accepted), np.float32), expected)
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                with named[1].connect((named[0].ip, 6000)) as connection:
                    received = np.frombuffer(read_all(connection), np.float32)
                assert np.array_equal(received, sent if layer == "exec" else expected)
                assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "true"], "no NIC: pass --nic PATH"),
        (["--nic", "/nowhere/nic.sock", "--", "true"], "no NIC answers at /nowhere/nic.sock"),
        (["--nic", "/nowhere/nic.sock"], "no command given"),
        (["--tag", "5000", "--", "true"], "'5000' is not PORT=CODEC"),
        (["--tag", "5000=zip", "--", "true"], "zip"),
    ],
)
def test_errors_of_the_command_say_what_to_do(arguments: list[str], message: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SOFTNIC_NIC"}
    done = subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_does_not_exist_is_named(named: list[Nic]) -> None:
    done = subprocess.run(
        [*COMMAND, "--nic", named[0].path, "--", "no-such-program"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "softnic exec: there is no program no-such-program\n"


def test_names_of_nodes_are_printed_for_programs_that_read_the_file_of_hosts(named: list[Nic]) -> None:
    done = subprocess.run([*COMMAND, "--nic", named[0].path, "--hosts"], capture_output=True, text=True, check=True)
    assert done.stdout == "10.77.0.1\tnode0 node0.softnic\n10.77.0.2\tnode1 node1.softnic\n"


def test_install_needs_a_nic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFTNIC_NIC", raising=False)
    import softnic

    with pytest.raises(OSError, match="set SOFTNIC_NIC"):
        softnic.install()
    assert socket.socket.__module__ == "softnic.socket"  # nothing was replaced


def test_install_warns_of_sockets_made_in_c(named: list[Nic]) -> None:
    if not needs.is_installed("uvloop"):
        needs.skip("not installed: uvloop (pip install 'softnic[programs]')")
    command = [sys.executable, "-c", "import softnic; softnic.install(); import uvloop"]
    environment = {**os.environ, "SOFTNIC_NIC": named[0].path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "run the program under `softnic exec`" in done.stderr
