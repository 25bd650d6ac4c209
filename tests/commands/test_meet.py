"""`softnic meet`: a server as users run it, and the tokens of jobs."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from softnic import underlay
from softnic.link.reach.client import MeetingClient
from softnic.link.reach.token import Token
from tests.commands.conftest import Start

LIMIT_S = 60.0
Run = Callable[..., tuple[int, str, str]]


def listening(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Return the port of a server, and the lines of its log up to there."""
    assert process.stderr is not None
    lines: list[str] = []
    while line := process.stderr.readline():
        lines.append(line.strip())
        if match := re.search(r"listens on UDP ports (\d+)", line):
            return int(match[1]), lines
    raise AssertionError(lines)


def token_of(softnic: Run, port: int, secret: Path, nodes: int = 2) -> Token:
    code, out, err = softnic(
        "meet", "token", "--server", f"127.0.0.1:{port}", "--nodes", str(nodes), "--secret", str(secret)
    )
    assert (code, err) == (0, "")
    return Token.parse(out)


def meet(token: Token, nodes: int = 2) -> list[MeetingClient]:
    """Have nodes meet in this process."""
    wires = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(nodes)]
    clients = []
    for wire in wires:
        wire.bind(("127.0.0.1", 0))
        clients.append(MeetingClient(token, os.urandom(32), [wire.getsockname()], os.urandom))
    end = time.monotonic() + LIMIT_S
    try:
        while not all(client.complete for client in clients):
            assert time.monotonic() < end
            for wire, client in zip(wires, clients, strict=True):
                for to, data in client.poll(time.monotonic()):
                    wire.sendto(data, to)
                while select.select([wire], [], [], 0.005)[0]:
                    data, source = wire.recvfrom(2048)
                    client.on_datagram(underlay.of_socket(source), data, time.monotonic())
    finally:
        for wire in wires:
            wire.close()
    return clients


def test_nodes_meet_at_a_server_with_a_token(start: Start, softnic: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    server = start("meet", "--listen", "127.0.0.1:0", "--secret", str(secret), "--no-relay")
    port, lines = listening(server)
    assert lines[0] == f"softnic meet: made the secret {secret}"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    clients = meet(token_of(softnic, port, secret))
    assert {client.number for client in clients} == {0, 1}
    server.send_signal(signal.SIGUSR1)
    server.send_signal(signal.SIGTERM)
    _, err = server.communicate(timeout=LIMIT_S)
    assert server.returncode == 0
    assert re.search(r"^softnic meet: jobs=1 nodes=2 requests=\d+ ", err, re.MULTILINE)
    assert "Traceback" not in err


def test_any_server_with_the_secret_will_do(start: Start, softnic: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    servers = [start("meet", "--listen", "127.0.0.1:0", "--secret", str(secret))]
    listening(servers[0])
    servers.append(start("meet", "--listen", "127.0.0.1:0", "--secret", str(secret)))
    port, _ = listening(servers[1])
    servers[0].kill()
    assert len(meet(token_of(softnic, port, secret))) == 2


def test_a_token_says_what_was_asked_for(softnic: Run, tmp_path: Path) -> None:
    options = ("--nodes", "8", "--expires", "2h", "--relay-rate", "10mbit", "--secret", str(tmp_path / "secret"))
    code, out, err = softnic("meet", "token", "--server", "a.example:1", "--server", "[2001:db8::1]:2", *options)
    assert (code, len(out.splitlines())) == (0, 1)
    assert err.splitlines() == [f"softnic meet: made the secret {tmp_path / 'secret'}"]
    token = Token.parse(out)
    assert token.servers == (("a.example", 1), ("2001:db8::1", 2))
    assert (token.nodes, token.grant.relay_kbps) == (8, 10_000)
    assert token.grant.expiry == pytest.approx(time.time() + 7200, abs=LIMIT_S)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--listen", "nonsense:x"), "'nonsense:x' is not HOST or HOST:PORT"),
        (("--relay-ports", "9999-9500"), "'9999-9500' is not a range of ports, as in 9500-9999"),
        (("--other-address", "example.org"), "'example.org' is not an IP address"),
        (("--relay-rate", "fast"), "'fast' is not a rate"),
        (("token", "--nodes", "2"), "--server"),
        (("token", "--server", "a:1", "--nodes", "0"), "'0' is not a whole number from 1 to 4096"),
        (
            ("token", "--server", "a:1", "--nodes", "2", "--expires", "soon"),
            "'soon' is not a time: a number and one of",
        ),
    ],
)
def test_wrong_usage_says_what_was_expected(softnic: Run, options: tuple[str, ...], said: str) -> None:
    code, _, err = softnic("meet", *options)
    assert code == 2
    assert said in err


def test_failures_are_one_line(softnic: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    code, _, err = softnic("meet", "--secret", str(secret))
    assert (code, err.count("\n")) == (1, 1)
    secret.write_text(os.urandom(32).hex())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        where = underlay.text(taken.getsockname())
        code, _, err = softnic("meet", "--listen", where, "--secret", str(secret))
    assert (code, err) == (
        1,
        f"softnic meet: cannot bind {where}: Address already in use (another process uses this port)\n",
    )
    servers = [each for number in range(9) for each in ("--server", f"a:{number}")]
    code, _, err = softnic("meet", "token", *servers, "--nodes", "2", "--secret", str(secret))
    assert (code, err) == (1, "softnic meet: a token has at most 8 servers\n")
