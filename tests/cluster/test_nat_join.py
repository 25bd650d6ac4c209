"""Hosts behind NATs that join a job: how their NICs reach each other, for all pairs of kinds; and how soon.

`pytest -s -m slow tests/cluster/test_nat_join.py` prints the table and the times.
"""

from __future__ import annotations

import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from softnic.cluster.nat_lab.kinds import PAIRED, theory
from softnic.cluster.nat_lab.lab import NatLab
from softnic.cluster.nat_lab.site import SitePlan
from tests import needs
from tests.cluster.nat_matrix import DIRECT, RELAYED, NatMatrix, Pair, table
from tests.meeting.served import COMMAND, PORT, private_file, started, token_for

pytestmark = needs.nats

PAIR_S = 90.0
HOSTS, DELAY = 8, "12.5ms"
"""One-way delay of each site's link: 50 ms for a round trip between two sites."""
TIMED = """
import time
begun = time.time()
from softnic import MPI
imported = time.time()
MPI.COMM_WORLD.Barrier()
print(begun, imported, time.time())
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def joined(directory: Path, pair: str) -> list[str]:
    """Return the command of each side of a pair, whose token has the pair's name."""
    words = [*COMMAND, "join", f"@{directory}/{pair}", "--ephemeral", "--timeout", "60s"]
    line = shlex.join([*words, "--", sys.executable, "-m", "tests.meeting.joined"])
    return ["sh", "-c", f"exec {line} 2>{directory}/{pair}.{{side}}"]


def run_pairs(matrix: NatMatrix, directory: Path, pairs: list[Pair]) -> dict[Pair, str]:
    server = matrix.lab.server
    address = server.address, PORT
    started(server.start, directory, address, "--tcp", f"{server.address}:{PORT}")
    for a, b in pairs:
        name = "_".join(kind.replace(" ", "-") for kind in (a, b))
        private_file(directory / name, token_for(address, 2).text())
    command = joined(directory, "{pair}")
    if len(pairs) == len(PAIRED) ** 2:
        return matrix.run(command, command, timeout_s=PAIR_S)
    found: dict[Pair, str] = {}
    for pair in pairs:
        found |= matrix.run_pairs([pair], (command, command), PAIR_S)
    return found


def test_a_pair_that_can_connect_directly_does(directory: Path) -> None:
    with NatMatrix() as matrix:
        assert run_pairs(matrix, directory, [("double", "restricted")]) == {("double", "restricted"): DIRECT}


@pytest.mark.slow
def test_pairs_that_cannot_are_relayed_by_udp_or_tcp(directory: Path) -> None:
    pairs = [("symmetric", "port-restricted"), ("no udp", "symmetric")]
    with NatMatrix() as matrix:
        assert run_pairs(matrix, directory, pairs) == dict.fromkeys(pairs, RELAYED)


@pytest.mark.slow
def test_all_pairs_connect_as_theory_has_it(directory: Path) -> None:
    with NatMatrix() as matrix:
        outcomes = run_pairs(matrix, directory, [(a, b) for a in PAIRED for b in PAIRED])
    print(f"\n{table(outcomes)}")
    assert outcomes == {pair: DIRECT if theory(*pair) else RELAYED for pair in outcomes}


def ended(process: subprocess.Popen[Any]) -> list[float]:
    """Return the times that a rank has printed."""
    said, _ = process.communicate(timeout=PAIR_S)
    assert process.returncode == 0
    return [float(word) for word in said.split()]


@pytest.mark.slow
def test_eight_hosts_behind_nats_pass_their_first_barrier(directory: Path) -> None:
    """All hosts share the cores of this machine; what the network takes is shown beside."""
    kinds = ["full cone", "restricted", "port-restricted", "double"] * (HOSTS // 4)
    plans = {f"site {number}": SitePlan(kind=kind, faults={"delay": DELAY}) for number, kind in enumerate(kinds)}
    with NatLab(plans) as lab:
        address = lab.server.address, PORT
        started(lab.server.start, directory, address)
        token = private_file(directory / "job", token_for(address, HOSTS).text())
        words = [*COMMAND, "join", f"@{token}", "--ephemeral", "--timeout", "60s", "--", sys.executable, "-c", TIMED]
        begun = time.time()
        ranks = []
        for number, name in enumerate(plans):
            with (directory / f"log{number}").open("w") as log:
                ranks.append(lab.host(name).start(*words, stdout=subprocess.PIPE, stderr=log, text=True))
        times = [ended(rank) for rank in ranks]
    barrier = max(each[2] for each in times) - begun
    ranks_begin = statistics.median(each[0] for each in times) - begun
    after_imports = barrier - (max(each[1] for each in times) - begun)
    print(
        f"\n{HOSTS} hosts, 50 ms: first barrier after {barrier:.2f} s; ranks begin after {ranks_begin:.2f} s;"
        f" connecting ranks and the barrier take {after_imports:.2f} s"
    )
    assert barrier < 30.0
    assert after_imports < 3.0
