"""`softnic stat`: tables for people, JSON for programs."""

from __future__ import annotations

import _socket
import errno
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from softnic import Cluster, socket
from softnic.cluster.nic_process import read_stats
from tests.commands.conftest import environment

Softnic = Callable[..., tuple[int, str, str]]


@contextmanager
def floats_sent(codec: str) -> Iterator[tuple[Cluster, Any, Any]]:
    """Two nodes; 640 floats went tagged from 10.77.0.1 to 10.77.0.2. And the ends of the connection, first to send."""
    with Cluster(nodes=2, codec=codec, seed=1) as cluster:
        paths = [str(path) for path in cluster.controls]
        with socket.socket(nic=paths[1]) as listener, socket.socket(nic=paths[0]) as client:
            listener.bind(("10.77.0.2", 5000))
            listener.listen()
            client.connect(("10.77.0.2", 5000))
            server, _ = listener.accept()
            with server:
                client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
                client.sendall(bytes(2560))
                assert len(server.recv(2560, socket.MSG_WAITALL)) == 2560
                yield cluster, client, server


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """As `floats_sent` leaves it, with the floats acknowledged."""
    with floats_sent("bounded:10") as (cluster, client, server):
        server.sendall(b"got it")  # its segment acknowledges what came
        client.recv(6)
        yield cluster


def test_tables_show_streams_and_counters(cluster: Cluster, softnic: Softnic) -> None:
    code, out, err = softnic("stat", "--nic", str(cluster.controls[0]))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("node0  10.77.0.1  02:53:4e:4d:00:01  mtu 1500  mode fill  offloads 0x28=bounded:10")
    [stream] = [line.split() for line in lines if "10.77.0.2:5000" in line]
    assert stream[0] == "ESTABLISHED"
    assert stream[-2:] == ["0x28", "bounded:10"]
    assert stream[3:5] == ["2.6", "KB"]
    assert ["tx_offload_original_bytes", "2,560"] in [line.split() for line in lines]
    assert "rx_drop_mac" not in out
    assert "rx_drop_mac" in softnic("stat", "--all", "--nic", str(cluster.controls[0]))[1]


def test_auto_says_why(softnic: Softnic) -> None:
    with floats_sent("auto") as (cluster, client, _):
        path = str(cluster.controls[0])
        _, out, _ = softnic("stat", "--nic", path)
        port = client.getsockname()[1]
        line = f"10.77.0.1:{port} 10.77.0.2:5000  auto: compressing bounded:10, not measured yet"
        assert line in out.splitlines()
        assert ["tx_auto_compressed_bytes", "2,560"] in [line.split() for line in out.splitlines()]
        [nic] = json.loads(softnic("stat", "--nic", path, "--json", "-")[1])
        [stream] = nic["streams"]
        assert stream["codec"] == "auto:bounded:10"
        assert (stream["auto"]["raw"], stream["auto"]["wire"]) == (False, None)
        assert stream["auto"]["why"] == "auto: compressing bounded:10, not measured yet"


@pytest.mark.slow
def test_watched_nics_say_how_busy_they_were(softnic: Softnic) -> None:
    """A stream that fills its link of 20 Mbit/s for as long as the command looks."""
    with Cluster(nodes=2, rate="20mbit", seed=1) as cluster:
        paths = [str(path) for path in cluster.controls]
        with socket.socket(nic=paths[1]) as listener, socket.socket(nic=paths[0]) as client:
            listener.bind(("10.77.0.2", 5000))
            listener.listen()
            client.connect(("10.77.0.2", 5000))
            server, _ = listener.accept()
            ended = threading.Event()

            def read() -> None:
                with server:
                    while server.recv(1 << 16):
                        pass

            def write() -> None:
                while not ended.is_set():
                    client.sendall(bytes(1 << 16))
                client.shutdown(socket.SHUT_WR)

            threads = [threading.Thread(target=work) for work in (read, write)]
            for thread in threads:
                thread.start()
            while cluster.stats(1).counters["rx_bytes"] < 1 << 18:
                pass
            _, out, _ = softnic("stat", "--seconds", "0.3", *(f"--nic={path}" for path in paths))
            figures = json.loads(softnic("stat", "--seconds", "0.1", "--nic", paths[0], "--json", "-")[1])
            ended.set()
            for thread in threads:
                thread.join()
    lines = out.splitlines()
    assert lines[0].endswith("  link 20 Mbit/s")
    sender, receiver = (line for line in lines if line.startswith("in "))
    busy = re.search(r"wire out .* Mbit/s \(([0-9]+)% busy\), in ", sender)
    assert busy is not None
    assert int(busy[1]) > 0
    assert "received 0 B/s" in sender
    assert "received 0 B/s" not in receiver
    rates = figures[0]["rates"]
    assert rates["seconds"] >= 0.1
    assert rates["tx_wire_bytes"] > rates["tx_bytes"] > 0
    assert rates["busy"] == pytest.approx(rates["tx_wire_bytes"] * 8 / 20e6)


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "1e9", "nan"])
def test_how_long_to_watch_is_checked(softnic: Softnic, seconds: str) -> None:
    code, _, err = softnic("stat", f"--seconds={seconds}")
    assert code == 2
    assert f"'{seconds}' is not a time from 0.01 to 3600 seconds" in err


def test_a_listener_has_no_figures(cluster: Cluster, softnic: Softnic) -> None:
    out = softnic("stat", "--nic", str(cluster.controls[1]))[1]
    assert ["LISTEN", "10.77.0.2:5000"] in [line.split() for line in out.splitlines()]


def test_json_has_it_all(cluster: Cluster, softnic: Softnic, tmp_path: Path) -> None:
    named = [argument for path in cluster.controls for argument in ("--nic", str(path))]
    code, out, _ = softnic("stat", *named, "--json", "-")
    assert code == 0
    nics: list[dict[str, Any]] = json.loads(out)
    assert [nic["nic"]["ip"] for nic in nics] == ["10.77.0.1", "10.77.0.2"]
    assert nics[0]["counters"]["tx_offload_original_bytes"] == 2560
    [stream] = nics[0]["streams"]
    assert (stream["peer"], stream["state"], stream["bytes_sent"]) == (["10.77.0.2", 5000], "ESTABLISHED", 2560)
    assert sorted(stream["state"] for stream in nics[1]["streams"]) == ["ESTABLISHED", "LISTEN"]
    file = tmp_path / "stat.json"
    code, out, _ = softnic("stat", *named, "--json", str(file))
    assert (code, len(json.loads(file.read_text()))) == (0, 2)
    assert "ESTABLISHED" in out


def test_the_nic_is_found_by_the_environment_or_by_looking(cluster: Cluster, softnic: Softnic) -> None:
    code, out, _ = softnic("stat", SOFTNIC_NIC=str(cluster.controls[1]))
    assert (code, out.splitlines()[0][:5]) == (0, "node1")
    assert "10.77.0.1" not in out.splitlines()[0]
    pids = {f"pid {nic.pid}" for nic in cluster.nics}
    found = {line.split("  ")[-1] for line in softnic("stat")[1].splitlines() if line.startswith("node")}
    assert pids <= found


def test_no_nic_is_one_line(softnic: Softnic) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as empty:  # short: where sockets cannot be named, NICs lie in /tmp
        code, out, err = softnic("stat", TMPDIR=empty)
    assert (code, out) == (1, "")
    hint = "name one with --nic PATH or SOFTNIC_NIC, or start some with softnic run"
    assert err == f"softnic stat: no NIC runs here: {hint}\n"


def test_a_nic_of_another_user_is_told_from_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(_socket.socket):
        def connect(self, _path: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("_socket.socket", Refused)
    said = r"no NIC answers at a.sock \(Permission denied\): a NIC serves the user it runs as, and root"
    with pytest.raises(PermissionError, match=said):
        read_stats(Path("a.sock"))


def test_a_nic_that_is_not_there_is_one_line(softnic: Softnic, tmp_path: Path) -> None:
    code, out, err = softnic("stat", "--nic", str(tmp_path / "none.sock"))
    assert (code, out) == (1, "")
    assert err.startswith(f"softnic stat: no NIC answers at {tmp_path}/none.sock")
    assert err.count("\n") == 1


BLOCKS = """
import numpy as np
from softnic import MPI

comm = MPI.COMM_WORLD
values = np.ones(20000, np.float32)
comm.Allreduce_comp(values, values.copy(), codec="rht:4")
comm.Barrier()
print("ready", flush=True)
input()
"""


def test_a_stream_of_blocks_shows_their_codec() -> None:
    """Each block has its tag; between them the stream has none."""
    with Cluster(nodes=2, seed=1) as cluster:
        program = [sys.executable, "-c", BLOCKS]
        ranks = [
            subprocess.Popen(
                program, env=environment() | cluster.env(rank), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for rank in range(2)
        ]
        try:
            assert [rank.stdout.readline() for rank in ranks if rank.stdout] == ["ready\n"] * 2
            [blocks] = [each for each in cluster.stats(0).streams if each.offload_original_bytes]
        finally:
            for rank in ranks:
                rank.communicate("\n", timeout=60)
    assert (blocks.tos, blocks.codec, blocks.sent_codecs) == (0, "", ["rht:4"])


# -- why steps are slow ------------------------------------------------------------------------------------------------

LATE = """
import sys, time
import numpy as np
from softnic import MPI

comm = MPI.COMM_WORLD
values = np.ones(1000, np.float32)
comm.Allreduce(values, values.copy())
open(sys.argv[1] + str(comm.Get_rank()), "w").close()
if comm.Get_rank() == 3:
    time.sleep(600)
comm.Allreduce(values, values.copy())
"""


@pytest.mark.slow
def test_two_hosts_tell_together_why_a_step_is_stuck(softnic: Softnic, tmp_path: Path) -> None:
    """Each host has its own NICs, and the file of the other one."""
    with Cluster(nodes=4, seed=1) as cluster, Path(os.devnull).open("r+b", buffering=0) as null:
        for rank in range(4):
            cluster.spawn(
                rank, [sys.executable, "-c", LATE, f"{tmp_path}/ready"], [null.fileno()] * 3, dict(os.environ)
            )
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("ready*"))) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
        files = [str(tmp_path / name) for name in ("a.json", "b.json")]
        hosts = [[f"--nic={path}" for path in cluster.controls[first : first + 2]] for first in (0, 2)]
        commands = [[sys.executable, "-m", "softnic", "stat", "--why", "--samples", f] for f in files]
        running = [subprocess.Popen([*command, *nics]) for command, nics in zip(commands, hosts, strict=True)]
        assert [each.wait(60) for each in running] == [0, 0]
    alone, both = (
        json.loads(softnic("stat", "--why", "--json", "-", "--from", *those)[1]) for those in (files[:1], files)
    )
    assert alone[0]["kind"] == both[0]["kind"] == "late rank"
    assert alone[0]["rank"] == both[0]["rank"] == 3
    assert "its NIC has not been asked, or does not answer" in alone[0]["evidence"]
    assert "in state S" in " ".join(both[0]["evidence"])
    assert both[0]["call"] == "Allreduce(1000 x float32, op=SUM)"


def test_samples_of_idle_nics_have_no_findings(cluster: Cluster, softnic: Softnic, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for file, path in zip(files, cluster.controls, strict=True):
        assert softnic("stat", "--why", "--samples", file, "--nic", str(path)) == (0, "", "")
    code, out, err = softnic("stat", "--why", "--from", *files)
    assert code == 0
    assert out.startswith("nothing stands out")
    assert err.startswith("the files are not of the same time")  # they were written one after the other


def test_text_in_samples_has_no_escape_sequences(softnic: Softnic, tmp_path: Path) -> None:
    evil = "\\u001b[2J"
    link = f'{{"rank": 1, "local": ["a", 1], "remote": ["{evil}", 2], "expected": 1}}'
    operation = f'{{"number": 1, "call": "{evil}", "age_s": 1, "left": 1, "total": 2}}'
    rank = f'{{"rank": 0, "size": 2, "posted": 1, "operations": [{operation}], "links": [{link}]}}'
    answer = (
        f'{{"type": "CollectivesInfo", "time": 1, "name": "n", "ip": "{evil}", "pid": 1, "communicators": [{rank}]}}'
    )
    file = tmp_path / "a.json"
    file.write_text(f'{{"schema": 1, "host": "h", "samples": [{{"taken_at": 1, "answers": {{"a": {answer}}}}}]}}')
    code, out, _ = softnic("stat", "--why", "--from", str(file))
    assert code == 0
    assert "late rank: rank 1 (?[2J) in ?[2J" in out
    assert out.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--samples", "a.json"], "--samples and --from need --why"),
        (["--from", "a.json"], "--samples and --from need --why"),
        (["--why", "--from", "a.json", "--nic", "n.sock"], "--from asks no NIC: leave out --nic and --samples"),
        (["--why", "--from", __file__], "not a file of softnic stat --why --samples"),
        (["--why", "--from", "/nowhere"], "No such file"),
        (["--why", "--from", "/dev/zero"], "it has more than 64 MiB"),
    ],
)
def test_wrong_options_for_samples(softnic: Softnic, arguments: list[str], text: str) -> None:
    code, out, err = softnic("stat", *arguments)
    assert (code != 0, out) == (True, "")
    assert text in err
    assert len(err.splitlines()) == 1
