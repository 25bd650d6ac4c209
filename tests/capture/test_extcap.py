"""`softnic extcap`: what it answers to Wireshark, its captures into a FIFO, what it installs; and tshark with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import softnic
from softnic import socket
from softnic.capture.extcap import ALL, LiveNic, interface_list, interfaces_of, link_types, options
from softnic.capture.reader import read
from softnic.capture.wireshark_folders import (
    DISSECTOR,
    WiresharkFolders,
    install,
    reported_folders,
    uninstall,
    wireshark_folders,
)
from softnic.commands import extcap, main
from tests import needs

from .lab import ARP, TOS, gradient
from .nics import StandInNic

WAIT_S = 120.0
SENTENCE = re.compile(r"(extcap|interface|dlt|arg|value) (\{[a-z]+=[^{}]+\})+")
FOLDERS_4_0 = """\
Temp:                	/tmp
Personal configuration:	/home/x y/.config/wireshark
Personal Plugins:    	/home/x y/.local/lib/wireshark/plugins/4.0
Personal Lua Plugins:	/home/x y/.local/lib/wireshark/plugins
Extcap path:         	/usr/lib/x86_64-linux-gnu/wireshark/extcap
"""

# Sentences


def test_interfaces_are_named_after_ranks() -> None:
    nics = [LiveNic("/a/node0.sock", "node0", "10.77.0.1", 11), LiveNic("/a/node1.sock", "node1", "10.77.0.2", 12)]
    first, second, all_ = interfaces_of(nics)
    assert (first.name, first.display) == ("softnic-node0", "softnic: rank 0 (10.77.0.1)")
    assert (second.name, second.paths) == ("softnic-node1", ("/a/node1.sock",))
    assert (all_.name, all_.paths) == (ALL, ("/a/node0.sock", "/a/node1.sock"))
    assert [one.name for one in interfaces_of(nics[:1])] == ["softnic-node0"]
    assert interfaces_of([]) == []


def test_names_are_unique_and_have_no_braces() -> None:
    nics = [LiveNic("/a", "node0", "10.77.0.1", 11), LiveNic("/b", "node0", "10.77.0.1", 12)]
    nics += [LiveNic("/c", "{x}\n=", "10.0.0.9", 13), LiveNic("/d", "", "10.0.0.8", 14)]
    found = interfaces_of(nics)
    names = [one.name for one in found]
    assert names == ["softnic-node0-11", "softnic-node0-12", "softnic-_x___", "softnic-nic", ALL]
    assert found[0].display == "softnic: rank 0 (10.77.0.1, pid 11)"
    for line in interface_list(found, "1.2").splitlines():
        assert SENTENCE.fullmatch(line)


def test_every_answer_is_sentences() -> None:
    lines = [*link_types().splitlines(), *options().splitlines()]
    assert [line for line in lines if not SENTENCE.fullmatch(line)] == []
    assert link_types().startswith("dlt {number=1}{name=EN10MB}")
    assert sum("{default=true}" in line for line in lines) == 1


# Captures into a FIFO


@pytest.fixture
def nic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInNic]:
    """The only NIC that is found."""
    monkeypatch.setattr(extcap, "running_nics", list)
    with StandInNic(tmp_path / "a", 0) as one:
        monkeypatch.setenv("SOFTNIC_NIC", one.path)
        yield one


@contextmanager
def reading(fifo: Path, then: Callable[[], object], least: int = 0, *, closes: bool = False) -> Iterator[list[bytes]]:
    """Opens a FIFO, reads at least `least` bytes, acts, and closes it or reads until the writer has closed it."""
    os.mkfifo(fifo)
    parts: list[bytes] = []

    def run() -> None:
        with fifo.open("rb", buffering=0) as file:
            while sum(map(len, parts)) < least:
                parts.append(file.read(1 << 16))
            then()
            while not closes and (data := file.read(1 << 16)):
                parts.append(data)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield parts
    finally:
        thread.join(WAIT_S)


def captures(fifo: Path, *more: str) -> int:
    return main(["extcap", "--extcap-interface", "softnic-node0", "--capture", "--fifo", str(fifo), *more])


def test_the_list_has_the_nics_that_answer(
    nic: StandInNic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone.sock"
    monkeypatch.setattr(extcap, "running_nics", lambda: [gone, Path(nic.path)])
    assert main(["extcap", "--extcap-interfaces", "--extcap-version=4.0"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("extcap {version=")
    assert lines == ["interface {value=softnic-node0}{display=softnic: rank 0 (10.77.0.1)}"]


def test_it_ends_when_the_reader_closes_also_without_packets(nic: StandInNic, tmp_path: Path) -> None:
    with reading(tmp_path / "fifo", nic.wait_for_capture, closes=True):
        assert captures(tmp_path / "fifo") == 0
    assert len(nic.captures) == 1


def test_it_ends_with_the_nic_and_the_file_is_complete(
    nic: StandInNic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave() -> None:
        nic.wait_for_capture()
        nic.wire(ARP, 30)
        nic.leave()

    with reading(tmp_path / "fifo", leave) as parts:
        assert captures(tmp_path / "fifo", "--side", "wire", "--snaplen", "20") == 0
    assert capsys.readouterr().err == f"softnic extcap: the NIC at {nic.path} stopped during the capture\n"
    (tmp_path / "x").write_bytes(b"".join(parts))
    capture = read(tmp_path / "x")
    assert [one.name for one in capture.interfaces] == ["node0:wire"]
    assert capture.captured.tolist() == [20] * 30


def test_a_signal_ends_it(nic: StandInNic, tmp_path: Path) -> None:
    def stop() -> None:
        nic.wait_for_capture()
        nic.wire(ARP)
        os.kill(os.getpid(), signal.SIGTERM)

    with reading(tmp_path / "fifo", stop, least=1) as parts:
        assert captures(tmp_path / "fifo") == 0
    (tmp_path / "x").write_bytes(b"".join(parts))
    assert [one.received for one in read(tmp_path / "x").interfaces] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--extcap-capture-filter", "tcp"), "no capture filters"),
        (("--extcap-interface", "softnic-node7"), "no NIC is listed as softnic-node7"),
    ],
)
def test_an_error_closes_the_fifo_that_wireshark_waits_for(
    nic: StandInNic, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    with reading(tmp_path / "fifo", lambda: None) as parts:
        assert captures(tmp_path / "fifo", *arguments) == 1
    error = capsys.readouterr().err
    assert (text in error, error.count("\n"), b"".join(parts), nic.captures) == (True, 1, b"", [])


def test_wrong_calls_are_errors_of_one_line(nic: StandInNic, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extcap"]) == 1
    assert "softnic extcap --install" in capsys.readouterr().err
    assert main(["extcap", "--extcap-interface", "softnic-node0", "--capture"]) == 1
    assert "--fifo" in capsys.readouterr().err
    assert main(["extcap", "--extcap-interface", "x", "--extcap-capture-filter", ""]) == 0
    assert capsys.readouterr().out == "", "Wireshark takes any text for an error in the filter"
    assert main(["extcap", "--extcap-interface", "x", "--extcap-capture-filter", "tcp"]) == 0
    assert "no capture filters" in capsys.readouterr().out
    nic.leave()
    assert main(["extcap", "--extcap-interface", "softnic-node0", "--capture", "--fifo", os.devnull]) == 1
    assert "no NIC runs here" in capsys.readouterr().err


# Installing


def test_folders_are_those_that_wireshark_reports() -> None:
    before = reported_folders(FOLDERS_4_0)
    assert before == WiresharkFolders(
        (Path("/home/x y/.config/wireshark/extcap"),), Path("/home/x y/.local/lib/wireshark/plugins")
    )
    since = reported_folders(FOLDERS_4_0 + "Personal Extcap path:	/home/x y/.local/lib/wireshark/extcap\n")
    assert since is not None
    assert since.extcap == (Path("/home/x y/.local/lib/wireshark/extcap"),)
    assert reported_folders("Usage: tshark\n") is None


def test_without_wireshark_the_folders_are_those_of_all_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("WIRESHARK_CONFIG_DIR", raising=False)
    extcap = Path("/home/x/.local/lib/wireshark/extcap")
    plugins = Path("/home/x/.local/lib/wireshark/plugins")
    expected = WiresharkFolders((extcap, Path("/home/x/.config/wireshark/extcap")), plugins)
    assert wireshark_folders() == expected
    (tmp_path / "tshark").write_text("#!/bin/false\n")
    (tmp_path / "tshark").chmod(0o755)
    assert wireshark_folders() == expected, "a tshark that fails"
    monkeypatch.setenv("WIRESHARK_CONFIG_DIR", "/c")
    assert wireshark_folders().extcap == (extcap, Path("/c/extcap"))


def test_what_is_installed_runs_and_goes_again(tmp_path: Path) -> None:
    folders = WiresharkFolders((tmp_path / "new" / "extcap", tmp_path / "old"), tmp_path / "plugins")
    for _ in range(2):  # again, as after an update
        first, second, link = install(folders)
    assert link.resolve() == DISSECTOR
    assert first.read_bytes() == second.read_bytes()
    done = subprocess.run(
        [first, "--extcap-interface", "x", "--extcap-dlts"], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert done.stdout == link_types() + "\n"
    link.unlink()
    link.symlink_to("/gone/softnic/capture/softnic.lua")  # of an environment that was removed
    (tmp_path / "old" / "other").write_text("")
    assert uninstall(folders) == [first, second, link]
    assert uninstall(folders) == []
    assert (tmp_path / "old" / "other").exists()


@pytest.mark.parametrize("name", ["extcap/softnic", "plugins/softnic.lua"])
def test_files_of_others_are_left_alone(tmp_path: Path, name: str) -> None:
    folders = WiresharkFolders((tmp_path / "extcap",), tmp_path / "plugins")
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("mine")
    with pytest.raises(FileExistsError, match="move it away"):
        install(folders)
    assert uninstall(folders) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == "mine"


# tshark


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home without settings, and a folder of clusters without others'. Both have short paths, as sockets need."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        for name in ("XDG_CONFIG_HOME", "WIRESHARK_CONFIG_DIR", "WIRESHARK_EXTCAP_DIR", "SOFTNIC_NIC"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", directory)
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


@contextmanager
def traffic(cluster: softnic.Cluster) -> Iterator[None]:
    """Tagged floats from rank 0 to rank 1."""
    ending = threading.Event()
    server = socket.create_server(("10.77.0.2", 29478), nic=str(cluster.controls[1]))
    here = socket.create_connection(("10.77.0.2", 29478), nic=str(cluster.controls[0]))
    there, _ = server.accept()
    here.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TOS)

    def send() -> None:
        while not ending.wait(0.02):
            here.sendall(gradient(4000).data)

    def receive() -> None:
        while there.recv(1 << 20):
            pass

    threads = [threading.Thread(target=send), threading.Thread(target=receive)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        threads[0].join(WAIT_S)
        here.close()
        threads[1].join(WAIT_S)
        there.close()
        server.close()


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs.tools("tshark", "dumpcap")
def test_tshark_captures_live_from_a_nic_of_its_list(home: Path) -> None:
    installed = run(sys.executable, "-m", "softnic", "extcap", "--install").splitlines()
    assert installed == [line for line in installed if line.startswith(f"wrote {home}/")] != []
    fields = ("frame.interface_name", "ip.src", "softnic.codec.name", "softnic.original_length")
    names = [part for field in fields for part in ("-e", field)]
    with softnic.Cluster(nodes=2) as cluster:
        listed = run("tshark", "-D")
        for rank in (0, 1):
            assert f"softnic-node{rank} (softnic: rank {rank} (10.77.0.{rank + 1}))" in listed
        with traffic(cluster):
            rows = run("tshark", "-n", "-i", "softnic-node0", "-c", "20", "-Y", "softnic", "-T", "fields", *names)
            wire = ("-o", "extcap.softnic_node1.side:wire", "-T", "fields", "-e", "frame.interface_name")
            assert run("tshark", "-n", "-i", "softnic-node1", "-c", "3", *wire).split() == ["node1:wire"] * 3
        found = [row.split("\t") for row in rows.splitlines()]
        assert len(found) > 5
        assert {tuple(row[:3]) for row in found} == {("node0:wire", "10.77.0.1", "bounded:10")}
        assert all(0 < int(row[3]) <= 16_000 for row in found)
    assert "softnic-node" not in run("tshark", "-D")


@needs.tools("tshark", "dumpcap")
def test_tshark_ends_with_the_nic(home: Path) -> None:
    run(sys.executable, "-m", "softnic", "extcap", "--install")
    file = home / "live.pcapng"
    with softnic.Cluster(nodes=2) as cluster, traffic(cluster):
        command = ["tshark", "-n", "-q", "-i", "softnic-all", "-w", str(file)]
        tshark = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + WAIT_S
        while not file.exists() or file.stat().st_size < 20_000:
            assert time.monotonic() < deadline, "tshark captures nothing"
            assert tshark.poll() is None, "tshark ended"
            time.sleep(0.05)
    assert tshark.wait(WAIT_S) == 0
    capture = read(file)
    assert {one.name for one in capture.interfaces} == {f"node{n}:{side}" for n in (0, 1) for side in ("host", "wire")}
    assert len(capture) > 10
