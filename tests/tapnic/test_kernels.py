"""Real kernels with softnic's NICs: unmodified programs, ordinary sockets, tagged by plain setsockopt."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from softnic import codecs
from softnic.cluster.kernel import KernelCluster
from softnic.ipc import control
from softnic.ipc.client import Client
from softnic.tapnic import namespaces
from tests import needs
from tests.tapnic.kernels import Program

pytestmark = needs.kernels

WAIT_S = 60.0
COUNT = 200_000
"""Floats."""

SENDER = """
import socket, sys
import numpy as np
if sys.argv[4] == "softnic":
    from softnic import socket
s = socket.create_connection((sys.argv[1], 5000))
words = np.random.default_rng(7).normal(0, 0.01, int(sys.argv[2])).astype(np.float32).tobytes()
tag = int(sys.argv[3], 0)
if tag:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tag)
at = 0
for size in (4, 3, 1, 61, 1448, 7, 100001):  # parts of words, too: what tagged programs should not do, and may
    s.sendall(words[at:at + size])
    at += size
s.sendall(words[at:])
s.shutdown(socket.SHUT_WR)
print(s.recv(100).decode(), flush=True)
"""

RECEIVER = """
import sys
import socket
if sys.argv[2] == "softnic":
    from softnic import socket
server = socket.create_server((sys.argv[1], 5000))
print("listening", flush=True)
peer, _ = server.accept()
data = bytearray()
while part := peer.recv(1 << 20):
    data += part
open(sys.argv[3], "wb").write(data)
peer.sendall(b"done")
peer.close()
"""


def words() -> bytes:
    return np.random.default_rng(7).normal(0, 0.01, COUNT).astype(np.float32).tobytes()


def send(cluster: KernelCluster, file: Path, tos: int, sender: int = 0, softnic: int | None = None) -> bytes:
    """Words from one node to the other. Returns what arrived. `softnic` is the node that uses softnic's sockets."""
    kinds = ["softnic" if node == softnic else "kernel" for node in range(2)]
    address = f"10.77.0.{2 - sender}"
    with Program(cluster, 1 - sender, RECEIVER, address, kinds[1 - sender], file) as receiver:
        assert receiver.line() == "listening"
        with Program(cluster, sender, SENDER, address, COUNT, tos, kinds[sender]) as sending:
            assert sending.end() == "done\n"
        receiver.end()
    return file.read_bytes()


def assert_rounded(got: bytes, name: str) -> None:
    """Each float as its codec leaves it, or unaltered where a write ended within its word."""
    sent, came = (np.frombuffer(data, np.float32) for data in (words(), got))
    assert len(came) == len(sent)
    codec = codecs.get(name)
    rounded = codec.decode(codec.encode(sent), len(sent))
    exact = came.view(np.uint32) != rounded.view(np.uint32)
    assert (came[exact].view(np.uint32) == sent[exact].view(np.uint32)).all()
    assert exact.sum() < COUNT / 100


def test_untagged_bytes_arrive_as_they_are(tmp_path: Path) -> None:
    with KernelCluster(nodes=2, loss="1%", seed=4) as cluster:
        got = send(cluster, tmp_path / "got", 0)
        assert hashlib.sha256(got).digest() == hashlib.sha256(words()).digest()
        counters = cluster.stats(0).counters
    assert counters["tx_offload_frames"] == 0
    assert counters["tap_read"] < counters["tx_frames"]  # super-segments cross the device
    assert counters["emulated_lost"] > 0


def test_tagged_floats_arrive_rounded_once_whatever_is_lost_and_sent_again(tmp_path: Path) -> None:
    with KernelCluster(nodes=2, loss="5%", reorder="1%", seed=3, codec="bounded:10") as cluster:
        got = send(cluster, tmp_path / "got", 0x28)
        counters = cluster.stats(0).counters
    assert_rounded(got, "bounded:10")
    assert counters["tx_exact_bytes"] < 4 * COUNT / 50  # a packet that ends within a word has up to 3
    assert counters["tx_offload_original_bytes"] > 2.5 * counters["tx_offload_encoded_bytes"]
    assert counters["emulated_lost"] > 0


def test_blocks_hold_their_bound_whatever_is_lost(tmp_path: Path) -> None:
    with KernelCluster(nodes=2, loss="1%", seed=4, codec="bfp:7") as cluster:
        got = send(cluster, tmp_path / "got", 0x28)
    sent, came = (np.frombuffer(data, np.float32) for data in (words(), got))
    assert np.abs(sent - came).max() <= np.abs(sent).max() * 2.0**-6
    assert (sent != came).mean() > 0.5


class Impatient(KernelCluster):
    def nic_arguments(self, node: int) -> list[str]:
        return [*super().nic_arguments(node), "--peer-timeout", "1s"]


def test_the_nic_of_a_kernel_that_is_stopped_ends() -> None:
    """So that who started it learns of it: its programs wait in their kernel, for minutes or for ever."""
    with Impatient(nodes=1) as cluster:
        cluster.nics[0].signal(signal.SIGSTOP)
        assert cluster.nics[0].wait(WAIT_S) == 0
        lost = cluster.lost_nic()
    assert lost is not None
    assert "it was stopped" in lost


@pytest.mark.parametrize("sender", [0, 1])
def test_a_kernel_and_sockets_of_softnic(tmp_path: Path, sender: int) -> None:
    with KernelCluster(nodes=2, kernels=[0], codec="bounded:10", seed=5) as cluster:
        got = send(cluster, tmp_path / "got", 0x28, sender, softnic=1)
        counters = [cluster.stats(node).counters for node in range(2)]
    assert_rounded(got, "bounded:10")
    assert counters[sender]["tx_offload_original_bytes"] > 0.9 * 4 * COUNT
    assert counters[1 - sender]["rx_offload_original_bytes"] > 0.9 * 4 * COUNT  # retransmissions may be lost


def test_a_nic_of_a_kernel_answers_who_looks_on_and_refuses_streams() -> None:
    server = "import socket; s = socket.create_server(('10.77.0.2', 6000)); print(flush=True); s.accept()[0].recv(9)"
    client = (
        "import socket; s = socket.create_connection(('10.77.0.2', 6000)); print(flush=True);"
        "import os; os.read(0, 1); s.recv(9)"
    )
    with KernelCluster(nodes=2) as cluster, Program(cluster, 1, server) as listening:
        listening.line()
        with Program(cluster, 0, client) as connected:
            connected.line()
            [stream] = cluster.stats(0).streams
            [event] = cluster.stats(0).events
        assert (stream.state, stream.local[0], stream.peer) == ("KERNEL", "10.77.0.1", ("10.77.0.2", 6000))
        assert stream.peer_codecs
        assert event.text.startswith("started as 10.77.0.1, process ")
        with (
            closing(Client(cluster.controls[0])) as nic,
            pytest.raises(OSError, match="use the kernel's sockets") as refused,
        ):
            nic.call(control.Connect("10.77.0.2", 6000))
        assert refused.value.errno == errno.EOPNOTSUPP


def _refuse(*_: object) -> int:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_what_is_in_the_way_of_a_device_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    device = ("softnic-test", bytes(6), 1500, "10.77.0.1", 24)
    with pytest.raises(OSError, match="there is no process 4194305, whose network namespace is to be used"):
        namespaces.open_tap_in(4194305, *device)  # beyond the largest that Linux gives (pid_max)
    with pytest.raises(OSError, match=r"cannot make the TAP device lo: .*is there a device of this name already\?"):
        namespaces.open_tap("lo", *device[1:])
    monkeypatch.setattr(os, "open", _refuse)
    with pytest.raises(OSError, match="is closed to this user: as root, chmod 666 /dev/net/tun opens it"):
        namespaces.open_tap(*device)


def test_the_program_of_the_document(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "kernel.md").read_text()
    [program] = re.findall(r"```python\n# program.py\n(.*?)```", text, re.DOTALL)
    shown = re.search(r"```sh\nsoftnic (run .*) -- python program.py\n```\n\n```text\n(.*)\n```", text)
    assert shown is not None
    command, says = shown.groups()
    (tmp_path / "program.py").write_text(program)
    run = [sys.executable, "-m", "softnic", *command.split(), "--", sys.executable, "program.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, f"{says}\n"), done.stderr


MIXED = """
import os, socket, sys, time
if os.environ["SOFTNIC_RANK"] == "0":
    with socket.create_server((os.environ["MASTER_ADDR"], 5000)) as server:
        peer, _ = server.accept()
        print(peer.recv(100).decode(), "came to the kernel")
else:
    from softnic import socket
    while True:
        try:
            s = socket.create_connection((os.environ["MASTER_ADDR"], 5000)); break
        except ConnectionRefusedError:
            time.sleep(0.05)
    s.sendall(b"bytes of a NIC")
"""


def test_some_ranks_with_kernels_and_others_with_sockets() -> None:
    run = ["run", "-n", "2", "--kernel", "0", "--", sys.executable, "-c", MIXED]
    done = subprocess.run(
        [sys.executable, "-m", "softnic", *run], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[0] bytes of a NIC came to the kernel\n"), done.stderr


UNCHANGED = """
import os, socket, time
address = (os.environ["MASTER_ADDR"], 5000)
if os.environ["SOFTNIC_RANK"] == "0":
    with socket.create_server(address) as server:
        peer, _ = server.accept()
        print(peer.recv(100).decode(), flush=True)
else:
    while True:
        try:
            s = socket.create_connection(address); break
        except ConnectionRefusedError:
            time.sleep(0.05)
    s.sendall(b"hello")
"""


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_one_unchanged_program_on_ranks_of_both_kinds(kernels: str) -> None:
    run = ["run", "-n", "2", "--kernel", kernels, "--", sys.executable, "-m", "softnic", "exec", "--", sys.executable]
    done = subprocess.run(
        [sys.executable, "-m", "softnic", *run, "-c", UNCHANGED],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[0] hello\n"), done.stderr


UPLINKED = """
import os, socket, sys
s = socket.create_connection(("10.0.2.2", int(sys.argv[1])), timeout=2)
"""
ROUTES = """
import sys
routes = [line.split() for line in open("/proc/net/route").readlines()[1:]]
print(sorted((name, target == "00000000") for name, target, *_ in routes))
print(open("/etc/resolv.conf").read().strip())
"""


@needs.tools("slirp4netns")
def test_an_uplink_is_the_default_route_and_the_name_server() -> None:
    """It leads to the host's network, and not to what listens on the host's loopback."""
    resolver = Path("/etc/resolv.conf")
    if not resolver.exists():
        needs.skip(f"this system has no {resolver}")
    before = resolver.read_text()
    with (
        KernelCluster(nodes=1, uplink=True) as cluster,
        socket.create_server(("127.0.0.1", 0)) as server,
        Program(cluster, 0, ROUTES) as routes,
        Program(cluster, 0, UPLINKED, server.getsockname()[1]) as refused,
    ):
        assert routes.line() == "[('softnic0', False), ('uplink0', False), ('uplink0', True)]"
        assert routes.end() == "nameserver 10.0.2.3\n"
        assert refused.process.wait(WAIT_S) == 1
    assert resolver.read_text() == before


@needs.tools("pasta", "unshare")
def test_an_uplink_by_pasta(tmp_path: Path) -> None:
    """As above, for a user other than root, which pasta demands, where slirp4netns is not installed."""
    if not Path("/etc/resolv.conf").exists():
        needs.skip("this system has no /etc/resolv.conf")
    (tmp_path / "pasta").symlink_to(str(shutil.which("pasta")))
    user = [] if os.geteuid() else [str(shutil.which("unshare")), "-U", "--map-user=1000", "--map-group=1000"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"{ROUTES}\nsys.argv[1:] = ['{server.getsockname()[1]}']\n{UPLINKED}"
        run = ["-m", "softnic", "run", "-n", "1", "--kernel", "--uplink", "--", sys.executable, "-c", code]
        done = subprocess.run(
            [*user, sys.executable, *run], env={**os.environ, "PATH": str(tmp_path)},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    routes = "[0] [('softnic0', False), ('uplink0', False), ('uplink0', True)]\n[0] nameserver 10.0.2.3\n"
    assert done.stdout == routes, done.stderr


@needs.tools("unshare")
def test_run_without_privilege() -> None:
    """In a user namespace this user may do nothing outside of it."""
    code = (
        "import os, socket, time\n"
        "if os.environ['SOFTNIC_RANK'] == '0':\n"
        "    server = socket.create_server((os.environ['SOFTNIC_IP'], 5000)); peer, _ = server.accept()\n"
        "    print(peer.recv(100).decode(), 'came', flush=True)\n"
        "else:\n"
        "    while True:\n"
        "        try:\n"
        "            s = socket.create_connection((os.environ['MASTER_ADDR'], 5000)); break\n"
        "        except ConnectionRefusedError:\n"
        "            pass\n"
        "    s.sendall(b'hello')\n"
    )
    done = subprocess.run(
        [
            "unshare",
            "-Ur",
            sys.executable,
            "-m",
            "softnic",
            "run",
            "-n",
            "2",
            "--kernel",
            "--",
            sys.executable,
            "-c",
            code,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[0] hello came\n"), done.stderr
