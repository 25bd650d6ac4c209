"""`softnic capture` against NICs that a test holds in its hand."""

from __future__ import annotations

import io
import json
import signal
import socket
import threading
from pathlib import Path

import pytest

from softnic.capture import reader
from softnic.capture.capture_file import CaptureError
from softnic.capture.recorder import Recorder
from softnic.commands import main
from softnic.commands.capture import Side, recording

from .conftest import Tshark
from .lab import ARP
from .nics import StandInNic


def test_nics_are_joined_into_one_file(tmp_path: Path, tshark: Tshark) -> None:
    path = tmp_path / "x.pcapng"
    with StandInNic(tmp_path / "a", 0) as a, StandInNic(tmp_path / "b", 1) as b:
        with recording([a.path, b.path], path) as recorder:
            for _ in range(50):
                a.wire(ARP, 2)
                b.wire(ARP)
        assert (recorder.packets, recorder.dropped, recorder.ended) == (150, 0, [])
        assert recorder.bytes_written == path.stat().st_size
    capture = reader.read(path)
    assert [one.name for one in capture.interfaces] == ["node0:host", "node0:wire", "node1:host", "node1:wire"]
    assert capture.interfaces[1].description == "softnic 10.77.0.1, wire side, mode fill, offloads 0x2c=inceptionn:10"
    assert [one.received for one in capture.interfaces] == [0, 100, 0, 50]
    times = capture.time_ns.tolist()
    assert times == sorted(times)
    assert len(tshark(path, "frame.number")) == 150
    assert tshark(path, "frame.number", where="_ws.malformed") == []


def test_more_than_the_sockets_hold_arrives_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    with StandInNic(tmp_path / "a", 0) as nic:
        with recording([nic.path], path) as recorder:
            for _ in range(40):
                nic.wire(bytes(1514), 200)
        assert recorder.packets + recorder.dropped == 8000
    assert len(reader.read(path)) == recorder.packets


@pytest.mark.parametrize(("side", "numbers"), [(Side(host=False), (-1, 0)), (Side(wire=False), (0, -1))])
def test_one_side_alone(tmp_path: Path, side: Side, numbers: tuple[int, int]) -> None:
    with StandInNic(tmp_path / "a", 0) as nic:
        with recording([nic.path], tmp_path / "x", side=side, snaplen=30):
            nic.wire(ARP)
        (asked,) = nic.captures
        assert (asked.host_interface, asked.wire_interface, asked.snaplen) == (*numbers, 30)
    capture = reader.read(tmp_path / "x")
    assert len(capture.interfaces) == 1
    assert capture.captured.tolist() == ([30] if side.wire else [])


def test_nics_of_one_name_are_told_apart_by_address(tmp_path: Path) -> None:
    with (
        StandInNic(tmp_path / "a", 0, "nic") as a,
        StandInNic(tmp_path / "b", 1, "nic") as b,
        recording([a.path, b.path], tmp_path / "x", side=Side(host=False)),
    ):
        pass
    names = [one.name for one in reader.read(tmp_path / "x").interfaces]
    assert names == ["nic@10.77.0.1:wire", "nic@10.77.0.2:wire"]


def test_the_command_stops_at_a_signal_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StandInNic(tmp_path / "a", 0) as nic:

        def interrupt() -> None:
            nic.wait_for_capture()
            nic.wire(ARP, 3)
            signal.raise_signal(signal.SIGINT)

        helper = threading.Thread(target=interrupt)
        helper.start()
        code = main(["capture", "--nic", nic.path, "-o", str(tmp_path / "x"), "--json", str(tmp_path / "j")])
        helper.join()
    assert code == 0
    assert "3 packets" in capsys.readouterr().err
    assert json.loads((tmp_path / "j").read_text()) == {
        "file": str(tmp_path / "x"),
        "packets": 3,
        "bytes": (tmp_path / "x").stat().st_size,
        "dropped": 0,
        "ended_early": [],
    }


def test_the_command_stops_when_its_nics_are_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nic = StandInNic(tmp_path / "a", 0)

    def leave() -> None:
        nic.wait_for_capture()
        nic.wire(ARP)
        nic.leave()

    with nic:
        helper = threading.Thread(target=leave)
        helper.start()
        code = main(["capture", "--nic", nic.path, "-o", str(tmp_path / "x")])
        helper.join()
    assert code == 0
    assert f"the NIC at {nic.path} stopped before the end of the recording" in capsys.readouterr().err
    assert len(reader.read(tmp_path / "x")) == 1


def test_the_command_stops_after_its_duration(tmp_path: Path) -> None:
    with StandInNic(tmp_path / "a", 0) as nic:
        assert main(["capture", "--nic", nic.path, "-o", str(tmp_path / "x"), "--duration", "10ms"]) == 0
    assert len(reader.read(tmp_path / "x")) == 0


def test_a_capture_goes_to_standard_output_as_it_comes(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with StandInNic(tmp_path / "a", 0) as nic:
        assert main(["capture", "--nic", nic.path, "-o", "-", "--duration", "10ms", "--wire-only"]) == 0
    assert [one.name for one in reader.parse(capfdbinary.readouterr().out).interfaces] == ["node0:wire"]


def test_a_nic_that_sends_no_blocks_ends_the_recording() -> None:
    ours, theirs = socket.socketpair()
    recorder = Recorder(io.BytesIO(), [], [ours])
    with theirs:
        theirs.sendall(b"no block" * 10)
        assert recorder.wait(60)
        with pytest.raises(CaptureError, match="a NIC sent a block"):
            recorder.stop()


def test_a_nic_that_does_not_answer_is_an_error_and_keeps_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "x"
    kept.write_text("a capture of yesterday")
    assert main(["capture", "--nic", str(tmp_path / "nobody"), "-o", str(kept)]) == 1
    assert "is softnicd running?" in capsys.readouterr().err
    assert kept.read_text() == "a capture of yesterday"


def test_wrong_usage_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOFTNIC_NIC", raising=False)
    assert main(["capture", "-o", str(tmp_path / "x")]) == 1
    assert "no NIC given" in capsys.readouterr().err
    assert main(["capture", "--nic", "a", "--nic", "./a", "-o", str(tmp_path / "x")]) == 1
    assert "given twice" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StandInNic(tmp_path / "a", 0) as nic:
        assert main(["capture", "--nic", nic.path, "-o", "/dev/full"]) == 1
    assert "No space left" in capsys.readouterr().err
