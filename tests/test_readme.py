"""The README is correct: its programs run as written, and features listed as unsupported are unsupported."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from softnic import MPI, Cluster, codecs, socket
from softnic.bench import allreduce, calibrate, latency, overlap, stream
from softnic.commands import load
from softnic.doctor import speed
from softnic.experiments.compare import advice
from softnic.model import predict
from tests.documented import run_program

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
SOFTNIC = [sys.executable, "-m", "softnic"]


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_commands_are_marked_and_plain() -> None:
    for name in ("demo", "tests"):
        shown = subprocess.run(
            [sys.executable, ROOT / ".ci" / "readme-command", name], capture_output=True, text=True, check=True
        ).stdout
        assert shown.startswith("python3 -m venv .venv && .venv/bin/pip install ")
        assert len(shown.splitlines()) == 1


def test_tagging_a_socket_as_written(tmp_path: Path) -> None:
    program = next(block for block in python_blocks() if "create_connection" in block)
    assert program.startswith("# tag.py\n")
    assert "\npython tag.py\n" in README
    (tmp_path / "tag.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "tag.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    line, floats, last = re.fullmatch(r"(b'.*') (b'.*'|b\".*\") (b'.*')", done.stdout.splitlines()[0]).groups()  # type: ignore[union-attr]
    assert (line, last) == (r"b'100000 gradients\n'", r"b'done\n'")
    assert floats
    before, after = (int(number.replace(",", "")) for number in re.findall(r"[\d,]{4,}", done.stdout.splitlines()[1]))
    assert before == 400_022
    assert after < before / 6


def test_the_recommended_codec_has_the_price_that_is_stated() -> None:
    """Ones over two ranks, and the rms error of floats."""
    codec = codecs.get("rht:4")
    ones = np.ones(1000, np.float32)
    rounded = codec.decode(codec.encode(ones), ones.size)
    once = rounded + rounded
    result = codec.decode(codec.encode(once), ones.size)
    shown = ", ".join(f"{value:.2f}" for value in result[:3])
    for page in ("README.md", "docs/index.md", "docs/codecs.md"):
        assert shown in " ".join((ROOT / page).read_text().split()), page
    floats = np.random.default_rng(1).normal(0, 0.01, 100_000).astype(np.float32)
    error = codec.decode(codec.encode(floats), floats.size) - floats
    assert round(100 * float(np.sqrt(np.mean(error**2) / np.mean(floats**2)))) == 9


def test_one_codec_is_recommended() -> None:
    """In the README's programs, in examples, and as the default of commands that compress gradients."""
    for block in python_blocks():
        assert not {name for name in re.findall(r"\b[a-z]+:\d+", block) if name.partition(":")[0] in codecs.names()} - {
            "rht:4"
        }
    for path in (ROOT / "docs" / "examples").glob("*.py"):
        assert not re.findall(r"bounded:\d|bfp:\d|inceptionn:\d", path.read_text()), path.name
    assert vars(load("demo"))["CODECS"][0] == speed.CODEC == advice.RECOMMENDED == predict.RECOMMENDED == "rht:4"
    for settings in (
        stream.StreamSettings,
        latency.LatencySettings,
        allreduce.AllreduceSettings,
        overlap.OverlapSettings,
    ):
        assert settings().codecs[0] == "rht:4"
    assert "rht:4" in calibrate.CalibrationSettings().codecs


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


def test_the_package_shows_what_is_useful() -> None:
    import softnic

    assert (
        set(dir(softnic)) == set(softnic.__all__) >= {"MPI", "socket", "codecs", "gradients", "Cluster", "__version__"}
    )
    assert re.match(r"\d+\.\d+", softnic.__version__)
    assert all(getattr(softnic, name) is not None for name in dir(softnic))
    given = "import softnic, sys; softnic.__version__; dir(softnic); print(*(m for m in sys.modules if 'numpy' in m))"
    loaded = subprocess.run([sys.executable, "-c", given], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == [], "nothing is imported before it is asked for"


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
