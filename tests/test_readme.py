"""The README is correct: its programs run as written, and features listed as unsupported are unsupported."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from softnic import MPI, Cluster, codecs, socket
from tests.documented import run_program

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
SOFTNIC = [sys.executable, "-m", "softnic"]

RECEIVER = """
from softnic import socket
with socket.create_server(("10.77.0.2", 29500)) as server:
    print("listening", flush=True)
    peer, _ = server.accept()
    with peer, peer.makefile("rb") as stream:
        assert stream.readline() == b"0.01 gradients\\n"
        floats = stream.read(4_000_000)
        assert len(floats) == 4_000_000
        assert stream.readline() == b"done\\n"
        print("received", flush=True)
"""


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_commands_are_marked_and_plain() -> None:
    for name in ("demo", "tests"):
        shown = subprocess.run(
            [sys.executable, ROOT / ".ci" / "readme-command", name], capture_output=True, text=True, check=True
        ).stdout
        assert shown.startswith("python3 -m venv .venv && .venv/bin/pip install ")
        assert len(shown.splitlines()) == 1


def test_tagging_a_socket_as_written() -> None:
    program = next(block for block in python_blocks() if "create_connection" in block)
    assert len(program.strip().splitlines()) <= 10
    with Cluster(nodes=2) as cluster:
        receiver = subprocess.Popen(
            [sys.executable, "-c", RECEIVER], env=cluster.env(1), stdout=subprocess.PIPE, text=True
        )
        assert receiver.stdout is not None
        with receiver:
            assert receiver.stdout.readline() == "listening\n"
            sent = subprocess.run(
                [sys.executable, "-c", program],
                env=cluster.env(0),
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert sent.returncode == 0, sent.stderr
            assert receiver.stdout.readline() == "received\n"


def test_training_loop_as_written(tmp_path: Path) -> None:
    program = next(block for block in python_blocks() if "COMM_WORLD" in block)
    assert len([line for line in program.splitlines() if line and not line.startswith("#")]) <= 15
    program = program.replace("range(100)", "range(3)")
    output = run_program(tmp_path, "train.py", program, "-n", "4", "--rate", "1gbit", "--delay", "50us")
    assert "every rank holds the same bits" in output


@pytest.mark.slow
def test_training_with_pytorch_as_written(tmp_path: Path) -> None:
    program = next(block for block in python_blocks() if "init_process_group" in block)
    (tmp_path / "ddp.py").write_text(program.replace("range(100)", "range(3)"))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "ddp.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("SOFTNIC_")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^loss \d+\.\d$", done.stdout, re.MULTILINE)


def test_links_are_valid() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_table_of_codecs_is_complete() -> None:
    [row] = [line for line in README.splitlines() if line.startswith("| Codecs | ")]
    named = re.findall(r"`([a-z]+)`", row.split("|")[2])
    assert sorted(named) == sorted([*codecs.names(), "auto"])
    assert codecs.get("auto").auto


class TestNotSupported:
    """The right column of the README's table. When one of these starts to work, change the table."""

    def test_sockets(self) -> None:
        for family, kind in ((socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET6, socket.SOCK_STREAM)):
            with pytest.raises(OSError, match="TCP over IPv4 only"):
                socket.socket(family, kind)

    def test_urgent_data(self) -> None:
        with Cluster(nodes=2) as cluster:
            nics = [str(path) for path in cluster.controls]
            with (
                socket.create_server(("10.77.0.2", 5000), nic=nics[1]),
                socket.create_connection(("10.77.0.2", 5000), nic=nics[0]) as s,
                pytest.raises(OSError, match="no urgent data"),
            ):
                s.send(b"!", socket.MSG_OOB)

    def test_collectives(self) -> None:
        for owner, call in ((MPI.Win, "Create"), (MPI.File, "Open"), (MPI.COMM_SELF, "Spawn")):
            with pytest.raises(NotImplementedError):
                getattr(owner, call)("argument")

    def test_frameworks(self) -> None:
        assert not [name for name in ("jax", "tensorflow") if importlib.util.find_spec(f"softnic.{name}")]
