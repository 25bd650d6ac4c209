"""The programs of docs/examples, run by the commands in their docstrings; on two ranks, as PyTorch starts slowly."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import needs

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "docs" / "examples"
LIMIT_S = 600.0
STARTS = {
    "softnic": [sys.executable, "-m", "softnic"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe"],
}


def command(program: str, launcher: str, *more: str) -> list[str]:
    """Return the command in the program's docstring, for two ranks."""
    text = ast.get_docstring(ast.parse((EXAMPLES / program).read_text())) or ""
    [line] = re.findall(rf"^ *({launcher} .*{re.escape(program)}.*)$", text, re.MULTILINE)
    words = [{"4": "2", "python": sys.executable}.get(word, word) for word in line.split()[1:]]
    return [*STARTS[launcher], *words, *more]


def environment() -> dict[str, str]:
    """Return this process's environment without the variables of any job that it belongs to."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SOFTNIC_", "OMP_", "RAY_"))}


@contextmanager
def started(argv: list[str], directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a command in its own session, whose processes are all killed at the end of the block."""
    for program in EXAMPLES.glob("*.py"):
        shutil.copy(program, directory)
    process = subprocess.Popen(
        argv,
        cwd=directory,
        env={**environment(), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def said(argv: list[str], directory: Path) -> str:
    """Return the output of a program, which must exit with 0."""
    with started(argv, directory) as process:
        text, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, text
    return text


def losses(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", text)]


def test_ddp_takes_five_changed_lines_at_most() -> None:
    lines = (EXAMPLES / "ddp.py").read_text().splitlines()
    changed = [line for line in lines if line.endswith("# softnic")]
    assert len(changed) <= 5
    assert not [line for line in lines[12:] if "softnic" in line and line not in changed]


@needs.tools("mpirun")
@pytest.mark.slow
def test_ddp_under_mpirun(tmp_path: Path) -> None:
    first, last = losses(said(command("ddp.py", "mpirun", "--steps", "40"), tmp_path))
    assert last < first / 1.5


@pytest.mark.slow
def test_fsdp2_under_softnic_run(tmp_path: Path) -> None:
    text = said(command("fsdp2.py", "softnic", "--steps", "40"), tmp_path)
    first, last = losses(text)
    assert last < first / 1.1
    assert "this rank holds 1,620,800 of 3,241,600 weights" in text


@needs.tools("mpirun")
def test_a_plain_loop_under_mpirun(tmp_path: Path) -> None:
    text = said(command("mpi_loop.py", "mpirun"), tmp_path)
    assert losses(text)[-1] < 0.6
    sent, given = (int(number.replace(",", "")) for number in re.findall(r"([\d,]+) bytes for ([\d,]+)", text)[0])
    assert sent < given / 5


@pytest.mark.slow
def test_training_continues_when_torchrun_restarts_its_workers(tmp_path: Path) -> None:
    with started(command("elastic.py", "torchrun", "--steps", "600"), tmp_path) as process:
        assert process.stdout is not None
        worker, text = 0, ""
        for line in process.stdout:
            text += line
            if found := re.search(r"rank 1, process (\d+): begins", line):
                worker = int(found[1])
            elif line.startswith("step 40:"):
                os.kill(worker, signal.SIGKILL)
        assert process.wait(LIMIT_S) == 0, text
    begun = [int(step) for step in re.findall(r"begins at step (\d+)", text)]
    assert begun[:2] == [0, 0]
    assert begun[2] == begun[3] >= 40, text
    assert losses(text)[-1] < losses(text)[0] / 2


@pytest.mark.slow
def test_ray_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two Ray nodes on this machine, each with a NIC. Starting Ray takes longer than all other tests of this file."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    needs.module("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        nodes.add_node(num_cpus=1)
        ray = ["env", "RAY_AUTH_MODE=disabled", f"RAY_ADDRESS={nodes.address}", sys.executable, "ray_train.py"]
        text = said([*ray, "--workers", "2"], tmp_path)
    finally:
        nodes.shutdown()
    assert float(re.findall(r"last loss: ([\d.]+)", text)[0]) < 0.5
    sent = re.findall(r"(10\.77\.0\.\d) sent ([\d,]+) bytes of gradients as ([\d,]+)", text)
    assert [ip for ip, _, _ in sent] == ["10.77.0.1", "10.77.0.2"]
    assert all(int(given.replace(",", "")) > 2 * int(made.replace(",", "")) > 0 for _, given, made in sent)
