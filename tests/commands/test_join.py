"""`softnic join`: a job of two nodes on loopback, its environment and exit codes, and errors of one line."""

from __future__ import annotations

import fcntl
import json
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from softnic.cluster.joined import nic_flags_of
from softnic.link.secure.identity import new_identity
from tests import needs
from tests.commands.conftest import LIMIT_S, Start
from tests.meeting.served import private_file, served, token_for

Run = Callable[..., tuple[int, str, str]]
SHOW = """
import json, os, sys
shown = {name: value for name, value in os.environ.items() if name.startswith(("SOFTNIC", "PET", "MASTER"))}
sys.stdout.write(json.dumps(shown) + "\\n")  # one write: ranks of a node share the output
"""
SUM = """
from softnic import MPI
comm = MPI.COMM_WORLD
print(comm.allreduce(comm.rank + 1), comm.size)
"""
TORCH = """
import torch, torch.distributed as dist, softnic.torch
dist.init_process_group("softnic")
x = torch.ones(1000)
dist.all_reduce(x)
print(dist.get_rank(), x[0].item())
dist.destroy_process_group()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


class Job:
    """A token of a server on loopback, and the hosts that join with it."""

    def __init__(self, directory: Path, start: Start, stack: ExitStack, nodes: int = 2) -> None:
        address, self.server = stack.enter_context(served(directory))
        self.token = private_file(directory / "job.token", token_for(address, nodes).text())
        self._directory, self._start, self._nodes = directory, start, nodes

    def run(self, *arguments: str, numbers: bool = True) -> list[tuple[int, str, str]]:
        """Return exit code, output and errors of `softnic join` on each host."""
        hosts = []
        for node in range(self._nodes):
            own = ["--number", str(node)] if numbers else []
            env = {"XDG_CONFIG_HOME": str(self._directory / f"host{node}")}
            hosts.append(self._start("join", f"@{self.token}", "--timeout", "60s", *own, *arguments, **env))
        return [(host.returncode, *each) for host in hosts for each in [host.communicate(timeout=LIMIT_S)]]


@pytest.fixture
def job(directory: Path, start: Start) -> Iterator[Job]:
    with ExitStack() as stack:
        yield Job(directory, start, stack)


def test_ranks_of_hosts_that_join_are_one_world(job: Job) -> None:
    ended = job.run("--", sys.executable, "-c", SUM)
    assert [(code, out) for code, out, _ in ended] == [(0, "3 2\n"), (0, "3 2\n")], ended
    err = ended[0][2]
    assert "made the key of this host" in err
    assert "2 of 2 nodes known" in err
    assert "10.77.0.2: direct by " in err


def test_nodes_have_several_ranks_each_and_the_variables_of_ranks(job: Job, directory: Path) -> None:
    ended = job.run("--ranks-per-node", "2", "--", sys.executable, "-c", SHOW)
    assert [code for code, _, _ in ended] == [0, 0], ended
    found = [json.loads(line) for _, out, _ in ended for line in out.splitlines()]
    assert sorted(int(each["SOFTNIC_RANK"]) for each in found) == [0, 1, 2, 3]
    for each in found:
        assert each["SOFTNIC_WORLD_SIZE"] == "4"
        assert each["SOFTNIC_PEERS"] == "10.77.0.1,10.77.0.1,10.77.0.2,10.77.0.2"
        assert each["SOFTNIC_IP"] == f"10.77.0.{int(each['SOFTNIC_RANK']) // 2 + 1}"
        assert len(each["SOFTNIC_JOB_SECRET"]) == 64
        assert "SOFTNIC_TOKEN" not in each
    assert len({each["SOFTNIC_JOB_SECRET"] for each in found}) == 1
    key = directory / "host0" / "softnic" / "identity"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_the_exit_code_is_the_commands(job: Job) -> None:
    ended = job.run("--ephemeral", "--", sys.executable, "-c", "import sys; sys.exit(7)", numbers=False)
    assert [code for code, _, _ in ended] == [7, 7], ended
    again = job.run("--", "sh", "-c", "kill -9 $$")
    assert {code for code, _, _ in again} <= {1, 128 + signal.SIGKILL}


@pytest.mark.slow
def test_torchrun_meets_over_the_nics(job: Job, directory: Path) -> None:
    needs.module("torch")
    script = directory / "sum.py"
    script.write_text(TORCH)
    launcher = [sys.executable, "-m", "torch.distributed.run"]
    ended = job.run("--", *launcher, "--nproc-per-node", "1", str(script))
    assert [(code, out) for code, out, _ in ended] == [(0, "0 2.0\n"), (0, "1 2.0\n")], ended


def test_a_node_that_does_not_come_is_named_after_the_timeout(softnic: Run, directory: Path) -> None:
    with served(directory) as (address, _):
        token = private_file(directory / "job.token", token_for(address, 3).text())
        code, out, err = softnic("join", f"@{token}", "--ephemeral", "--timeout", "1s", "--", "true")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == (
        "softnic join: 2 of 3 nodes did not register within 1 s: run softnic join there, too"
    )


def test_a_server_that_does_not_answer_is_named(softnic: Run, directory: Path) -> None:
    token = token_for(("127.0.0.1", 9), 2).text()
    code, _, err = softnic("join", "--ephemeral", "--timeout", "1s", "--", "true", SOFTNIC_TOKEN=token)
    assert code == 1
    assert "no meeting server answers: 127.0.0.1:9" in err.splitlines()[-1]
    with served(directory) as (address, _):
        token = token_for(address, 1).text()
        assert softnic("join", token, "--ephemeral", "--", "true")[0] == 0  # a job of one node


def test_a_key_is_one_nodes(softnic: Run, directory: Path) -> None:
    key = directory / "key"
    new_identity(str(key))
    token = token_for(("127.0.0.1", 9), 2).text()
    with key.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, _, err = softnic("join", token, "--identity", str(key), "--", "true")
    assert (code, err.count("\n")) == (1, 1)
    assert "is the key of another softnic join on this host" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "true"], "no token: softnic join @FILE -- COMMAND"),
        (["TOKEN", "--", "true"], "no token"),
        (["softnic-join:abc", "--", "true"], "the token is damaged or incomplete"),
        (["-", "--", "true"], "a token begins with softnic-join:"),
        (["@/nonexistent/token", "--", "true"], "softnic meet token"),
        (["softnic-join:abc"], "no command given"),
        (["softnic-join:abc", "--number", "1"], "no command given"),
    ],
)
def test_wrong_usage_is_one_line(softnic: Run, arguments: list[str], message: str) -> None:
    code, out, err = softnic("join", *arguments)
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert message in err


def test_a_wrong_option_behind_the_token_is_a_usage_error(softnic: Run) -> None:
    code, _, err = softnic("join", "softnic-join:abc", "--number", "x", "--", "true")
    assert code == 2
    assert "is not a whole number" in err


def test_flags_of_the_environment_are_split_as_a_shell_does() -> None:
    assert nic_flags_of({"SOFTNIC_NIC_FLAGS": "--rate 1gbit --name 'a b'"}) == ["--rate", "1gbit", "--name", "a b"]
    assert nic_flags_of({}) == []
    with pytest.raises(ValueError, match="quot"):
        nic_flags_of({"SOFTNIC_NIC_FLAGS": "'"})
