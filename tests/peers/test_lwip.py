"""A third TCP: lwIP, a program of its own (lwip.c) that speaks VXLAN to a NIC over UDP. It is node 0."""

from __future__ import annotations

import contextlib
import select
import socket as plain
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from softnic import socket
from softnic.cluster.netns_lab.cable import Cable
from tests import needs
from tests.daemon.nics import START_S, Nic, free_port, serving
from tests.peers.sides import KERNEL, LIMIT_S, Running, exchange, noise, send_back

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).with_name("lwip.c")
PORT = "4000"
MTU = 1500
SIZE = 1_000_000
BAD = {"delay": "1ms", "loss": "2%", "reorder": "2%", "duplicate": "2%", "corrupt": "0.5%"}

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if missing := needs.missing_tools("pkg-config"):
        needs.skip(missing)
    if subprocess.run(["pkg-config", "--exists", "lwip"], check=False).returncode:
        needs.skip("not installed: lwIP (apt-get install liblwip-dev)")
    program = tmp_path_factory.mktemp("lwip") / "lwip"
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "lwip"], capture_output=True, text=True, check=True)
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", str(program), str(SOURCE)]
    subprocess.run([*command, *flags.stdout.split()], check=True)
    return program


@contextlib.contextmanager
def beside(built: Path, directory: Path, emulation: dict[str, str] | None = None) -> Iterator[tuple[Nic, Start]]:
    """Yields a NIC and a function that starts lwIP as its peer, over a link that may be impaired."""
    here, port = "127.0.0.1", free_port()
    with contextlib.ExitStack() as stack:
        wire = stack.enter_context(plain.socket(plain.AF_INET, plain.SOCK_DGRAM))
        wire.bind((here, 0))
        own = wire.getsockname()[1]
        nics_place, lwips_place = port, own
        if emulation is not None:
            nics_place, lwips_place = free_port(), free_port()
            ends = ((here, nics_place), (here, own)), ((here, lwips_place), (here, port))
            stack.enter_context(Cable(subprocess.Popen, ends, emulation, seed=1, mtu=MTU))
        wire.connect((here, nics_place))
        nic = Nic(directory, 1, [lwips_place, port])
        stack.enter_context(serving([nic]))

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            command = [str(built), str(wire.fileno()), KERNEL, str(MTU), *arguments]
            process = subprocess.Popen(
                command, pass_fds=[wire.fileno()], bufsize=0,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            stack.callback(_end, process)
            assert process.stderr is not None
            assert select.select([process.stderr], [], [], START_S)[0]
            assert process.stderr.read(6) == b"ready\n"
            return process

        yield nic, start


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


wires = pytest.mark.parametrize("emulation", [None, BAD], ids=["a good wire", "a bad wire"])


@wires
def test_we_open_and_it_sends_back(built: Path, tmp_path: Path, emulation: dict[str, str] | None) -> None:
    with beside(built, tmp_path, emulation) as (nic, start):
        start("echo", PORT)
        for size in (1, 100_000, SIZE):
            with nic.connect((KERNEL, int(PORT))) as ours:
                ours.settimeout(LIMIT_S)
                exchange((ours, ours, size))
                assert socket.info(ours).peer_codecs is None


@wires
def test_it_opens_and_we_send_back(built: Path, tmp_path: Path, emulation: dict[str, str] | None) -> None:
    data = noise(SIZE, 1)
    with beside(built, tmp_path, emulation) as (nic, start), nic.server() as server:
        server.settimeout(LIMIT_S)
        process = start("send", *map(str, server.getsockname()))
        with server.accept()[0] as ours:
            ours.settimeout(LIMIT_S)
            back = Running(send_back, ours)
            said, complaint = process.communicate(data, timeout=LIMIT_S)
            assert (said, complaint, process.returncode) == (data, b"", 0)
            back.finish()


def test_where_it_does_not_listen_we_are_refused(built: Path, tmp_path: Path) -> None:
    with beside(built, tmp_path) as (nic, start):
        start("echo", PORT)
        with pytest.raises(ConnectionRefusedError):
            nic.connect((KERNEL, int(PORT) + 1))


def test_where_we_do_not_listen_it_is_refused(built: Path, tmp_path: Path) -> None:
    with beside(built, tmp_path) as (nic, start):
        process = start("send", nic.ip, PORT)
        _, complaint = process.communicate(timeout=LIMIT_S)
        assert b"connect: Connection" in complaint
        assert process.returncode == 1
