"""Pairs of commands behind NATs: what they are given, how they end, and the table."""

from __future__ import annotations

import subprocess
import sys

import pytest

from softnic.cluster.nat_lab.kinds import PAIRED, theory
from tests import needs
from tests.cluster.nat_matrix import DIRECT, NEITHER, RELAYED, NatMatrix, outcome, table

ASK = """
import socket, sys
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.settimeout(float(sys.argv[3]))
try:
    for _ in range(2):
        probe.sendto(sys.argv[2].encode(), (sys.argv[1], 9470))
        probe.recv(100)
except TimeoutError:
    print("relayed")
else:
    print(sys.argv[2], "direct", sep="\\n")
"""
"""Says `direct` if a server answers over UDP."""
ANSWER = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 9470))
print("ready", flush=True)
while True:
    text, source = server.recvfrom(100)
    print(text.decode(), flush=True)
    server.sendto(text, source)
"""


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        (("direct", "direct"), DIRECT),
        (("direct", "relayed"), RELAYED),
        (("relayed", "relayed"), RELAYED),
        (("direct", ""), NEITHER),
        (("Direct", "direct"), NEITHER),
    ],
)
def test_outcomes(sides: tuple[str, str], expected: str) -> None:
    assert outcome(sides) == outcome(sides[::-1]) == expected


def test_the_table_marks_what_theory_contradicts() -> None:
    right = {(a, b): DIRECT if theory(a, b) else RELAYED for a in PAIRED for b in PAIRED}
    lines = table(right).splitlines()
    assert len(lines) == 1 + len(PAIRED)
    assert lines[1].split() == ["open", *["direct"] * 6, "relayed"]
    assert "!" not in table(right)
    wrong = table({**right, ("open", "open"): NEITHER, ("symmetric", "double"): DIRECT})
    assert wrong.count("- !") == wrong.count("direct !") == 1


@needs.nats
@pytest.mark.slow
def test_all_pairs_run_their_commands() -> None:
    with NatMatrix() as matrix:
        command = [sys.executable, "-S", "-c"]
        address = matrix.lab.server.address
        server = matrix.lab.server.start(*command, ANSWER, address, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        sides = [*command, ASK, "{server}", "{pair}.{side}", "1"]
        outcomes = matrix.run(sides, sides, at_once=4)
        server.kill()
        asked = set(server.communicate()[0].split())
    assert outcomes == {(a, b): RELAYED if "no udp" in (a, b) else DIRECT for a in PAIRED for b in PAIRED}
    assert {"open_full-cone.left", "open_full-cone.right", "no-udp_open.right"} <= asked
    assert "no-udp_open.left" not in asked


@needs.nats
def test_a_command_that_fails_or_hangs_has_not_connected() -> None:
    script = 'case {pair} in *open*) exit 1;; *cone*) sleep 1000;; *) echo "{side} at {server}"; echo direct;; esac'
    with NatMatrix() as matrix:
        pairs = [("open", "double"), ("double", "full cone"), ("double", "symmetric")]
        command = ["sh", "-c", script]
        outcomes: dict[tuple[str, str], str] = {}
        for pair in pairs:
            outcomes |= matrix.run_pairs([pair], (command, command), timeout_s=1.0)
    assert outcomes == {pairs[0]: NEITHER, pairs[1]: NEITHER, pairs[2]: DIRECT}
