"""`python -m softnic.experiments.train` as a single rank: output and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from softnic.experiments.data import digits

LIMIT_S = 300.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "digits"
    digits().save(path)
    return path


def rank(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SOFTNIC_")}
    command = [sys.executable, "-P", "-m", "softnic.experiments.train", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=env, check=False)


def test_progress_and_outcome_as_text(data: Path) -> None:
    done = rank("--steps", "20", "--data", str(data))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == [f"step {step} of 20" for step in range(2, 21, 2)]
    assert lines[-1].startswith("accuracy ")


def test_progress_and_outcome_as_events(data: Path) -> None:
    done = rank("--steps", "3", "--data", str(data), "--events", "--strategy", "inc+bounded:10", "--seed", "1")
    assert (done.returncode, done.stderr) == (0, "")
    *steps, outcome = [json.loads(line) for line in done.stdout.splitlines()]
    assert steps[-1]["step"] == 3
    assert (outcome["rank"], len(outcome["weights"])) == (0, 64)
    assert outcome["exchanged_bytes"] == 3 * 4 * (65 * 500 + 3 * 501 * 500 + 501 * 10)


@pytest.mark.parametrize("batch", ["0", "1438"])
def test_an_impossible_batch_is_a_one_line_error(data: Path, batch: str) -> None:
    done = rank("--data", str(data), "--batch", batch)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"softnic.experiments.train: --batch {batch}: each of 1 ranks has 1437 samples of digits\n"


def test_missing_data_is_a_one_line_error(tmp_path: Path) -> None:
    done = rank("--data", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"softnic.experiments.train: {tmp_path}: train-images-idx3-ubyte (or ")
    assert done.stderr.count("\n") == 1


def test_an_unknown_codec_is_a_usage_error() -> None:
    done = rank("--strategy", "inc+zip:9")
    assert done.returncode == 2
    assert "zip" in done.stderr.splitlines()[-1]
