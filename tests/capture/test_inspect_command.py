"""`softnic inspect`: its tables, its JSON, its floats, its one-line errors; and what tshark makes of the same file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softnic.capture import reader
from softnic.codecs import get
from softnic.commands import main
from softnic.nic.nic import Mode

from . import blocks
from .conftest import Tshark
from .lab import ARP, TOS, Lab, gradient

SENT = np.concatenate([gradient(20_000) / 5, np.array([0.0, -1.5, np.inf, 0.25], np.float32)])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Bytes, floats and a frame that is no TCP."""
    lab = Lab()
    lab.connect()
    lab.send(b"GET / HTTP/1.1\r\n\r\n")
    lab.send(SENT, tos=TOS)
    lab.send(gradient(100), sender=1, tos=TOS)
    lab.other_frame(ARP)
    path = tmp_path / "x.pcapng"
    path.write_bytes(lab.file())
    return path


def inspect(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = main(["inspect", *map(str, arguments)])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    return printed.out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    return json.loads(inspect(capsys, *arguments, "--json", "-"))


def fails(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of an error."""
    assert main(["inspect", *map(str, arguments)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


# Tables


def test_the_flows_with_their_ratio_and_tags(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inspect(capsys, capture)
    rows = [line.split() for line in text.splitlines()]
    first = next(row for row in rows if row[:3] == ["1", "10.77.0.1:40000", "10.77.0.2:29478"])
    assert first[-1] == "node0:wire"
    tagged = next(row for row in rows if row[:2] == ["1", "bounded:10"])
    summary = as_json(capsys, capture)
    flow = summary["flows"][0]
    shares = [f"{flow['tags'][name] / SENT.size:.1%}" for name in ("bits_2", "bits_10", "bits_18", "bits_34", "raw")]
    assert tagged[-5:] == shares
    assert tagged[-6] == f"{flow['views'][0]['ratio']:.2f}"
    unwrapped = " ".join(text.split())  # a long name of the file wraps the first line
    assert "1 ARP" not in unwrapped
    assert "2 ARP" in unwrapped or "4 ARP" in unwrapped
    assert "all" in {row[0] for row in rows if row}


def test_no_figure_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = Lab()
    lab.connect()
    lab.send(np.full(64, -1.2345678e-05, np.float32), tos=TOS)
    path = tmp_path / "x.pcapng"
    path.write_bytes(lab.file())
    packets = as_json(capsys, path, "--flow", 1, "--at", "node0:host")["packets"]
    number = next(packet["number"] for packet in packets if packet["original_bytes"])
    assert inspect(capsys, path, "--packet", number).count("-1.23457e-05") == 64 + 3


def test_interfaces_of_a_flow_are_limited_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file names as many as it has bytes for."""
    names = [f"n{number}:wire" for number in range(60)]
    path = tmp_path / "x.pcapng"
    path.write_bytes(
        blocks.section("<")
        + b"".join(blocks.interface("<", name=name) for name in names)
        + b"".join(blocks.packet("<", number, number, blocks.frame(101, b"abc")) for number in range(len(names)))
    )
    text = inspect(capsys, path, "--flow", 1, "--limit", 5)
    assert [name in text for name in names] == [True] * 5 + [False] * 55
    assert "... and 55 more interfaces" in text
    assert inspect(capsys, path, "--flow", 1, "--limit", 0).count(":wire") == 60 + 1
    assert fails(capsys, path, "--flow", 1, "--at", "x").endswith("n39:wire and 20 more\n")


def test_a_limit_says_what_it_leaves_out(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inspect(capsys, capture, "--limit", 1)
    assert "... and 1 more flows, smaller (--limit 0 shows all)" in text
    assert [line.split()[:1] for line in text.splitlines() if "10.77.0.1:40000" in line] == [["1"]]
    assert "bounded:10" in text
    assert "nothing was tagged" not in text
    assert "more packets" in inspect(capsys, capture, "--flow", 1, "--limit", 3)
    assert "more packets" not in inspect(capsys, capture, "--flow", 1, "--limit", 0)


def test_a_flow_at_every_vantage_point(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inspect(capsys, capture, "--flow", 1)
    assert "both NICs have raw, inceptionn, bounded" in text
    assert text.index("node0:wire") < text.index("node0:host") < text.index("node1:wire")
    record = as_json(capsys, capture, "--flow", 1)
    assert [view["interface"] for view in record["views"]] == ["node0:wire", "node0:host", "node1:wire", "node1:host"]
    assert len(record["packets"]) == record["views"][0]["packets"]
    assert sum(packet["original_bytes"] for packet in record["packets"]) == record["views"][0]["stream_bytes"]
    host = as_json(capsys, capture, "--flow", 1, "--at", "node0:host")
    assert host["views"][0]["interface"] == "node0:host"
    assert {packet["state"] for packet in host["packets"]} == {"plain", "floats"}


def test_a_packet_decodes_to_its_floats(capture: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    packets = [one for one in as_json(capsys, capture, "--flow", 1)["packets"] if one["state"] == "encoded"]
    decoded = get("bounded:10").roundtrip(SENT)
    at = packets[0]["position"]
    for packet in (packets[0], packets[1], packets[-1]):
        start = (packet["position"] - at) // 4
        expected = decoded[start : start + packet["original_bytes"] // 4]
        record = as_json(capsys, capture, "--packet", packet["number"])
        values = [float(value) for value in record["floats"]]
        assert np.array(values, np.float32).tobytes() == expected.tobytes()
        inspect(capsys, capture, "--packet", packet["number"], "--floats", tmp_path / "p", "--bytes", tmp_path / "b")
        assert np.load(tmp_path / "p").tobytes() == expected.tobytes()
        assert (tmp_path / "b").read_bytes() == expected.tobytes()
        assert sum(record["tags"].values()) == expected.size
    text = inspect(capsys, capture, "--packet", packets[-1]["number"], "--limit", 0)
    assert "bounded:10" in text
    assert text.split()[-4:] == ["0", "-1.5", "inf", "0.25"]


def test_an_untagged_packet_shows_its_bytes(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packets = as_json(capsys, capture, "--flow", 1)["packets"]
    number = next(one["number"] for one in packets if one["state"] == "plain" and one["payload_bytes"])
    assert "GET / HTTP/1.1.." in inspect(capsys, capture, "--packet", number)
    assert "untagged" in fails(capsys, capture, "--packet", number, "--floats", "/dev/null")


def test_streams_are_exported_as_sent_and_as_decoded(
    capture: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    inspect(capsys, capture, "--flow", 1, "--floats", out)
    decoded = get("bounded:10").roundtrip(SENT)
    assert np.load(out).dtype == np.float32
    assert np.load(out).tobytes() == decoded.tobytes()
    inspect(capsys, capture, "--flow", 1, "--floats", out, "--at", "node0:host")
    assert np.load(out).tobytes() == SENT.tobytes()
    inspect(capsys, capture, "--flow", 1, "--bytes", out)
    assert out.read_bytes() == b"GET / HTTP/1.1\r\n\r\n" + decoded.tobytes()


def test_a_file_without_tcp(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lab = Lab()
    lab.other_frame(ARP)
    path = tmp_path / "x"
    path.write_bytes(lab.file())
    assert "no TCP packets" in inspect(capsys, path)
    path.write_bytes(lab.head())
    assert "0 packets" in inspect(capsys, path)


# Errors


def test_a_broken_file_is_one_line_with_the_offset(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = capture.read_bytes()
    last = int(reader.parse(whole).offset[-1]) - 28
    capture.write_bytes(whole[: last + 40])
    assert fails(capsys, capture).endswith(f"at byte offset {last}\n")
    capture.write_bytes(b"{}" * 50)
    assert "not a pcapng or pcap file" in fails(capsys, capture)


def test_what_is_not_there_is_one_line(capture: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "No such file" in fails(capsys, tmp_path / "nothing")
    assert "no flow 9: the capture has 2" in fails(capsys, capture, "--flow", 9)
    assert "no packet 99999" in fails(capsys, capture, "--packet", 99999)
    assert "not a complete TCP packet" in fails(capsys, capture, "--packet", len(reader.read(capture)))
    assert "is not at 'node7:wire', only at" in fails(capsys, capture, "--flow", 1, "--at", "node7:wire")
    assert "--packet N" in fails(capsys, capture, "--floats", tmp_path / "x")
    assert "--at needs --flow" in fails(capsys, capture, "--at", "node0:wire")


def test_a_snaplen_is_told_where_floats_are_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lab = Lab(snaplen=90)
    lab.connect()
    lab.send(SENT, tos=TOS)
    path = tmp_path / "x"
    path.write_bytes(lab.file())
    assert "cannot be decoded" in inspect(capsys, path)
    assert "snaplen" in fails(capsys, path, "--flow", 1, "--floats", tmp_path / "f")
    number = next(one["number"] for one in as_json(capsys, path, "--flow", 1)["packets"] if one["state"] == "encoded")
    assert "snaplen" in inspect(capsys, path, "--packet", number)
    assert "snaplen" in fails(capsys, path, "--packet", number, "--floats", tmp_path / "f")


def test_another_tos_has_to_be_named(capsys: pytest.CaptureFixture[str], capture: Path) -> None:
    assert as_json(capsys, capture, "--tos", "0x2c")["flows"][0]["views"][0]["tagged_packets"] == 0
    with pytest.raises(SystemExit):
        main(["inspect", str(capture), "--tos", "3"])


# tshark


@pytest.mark.parametrize("mode", ["fill", "packet"])
def test_tshark_finds_nothing_malformed(tmp_path: Path, tshark: Tshark, mode: Mode) -> None:
    lab = Lab(mode)
    lab.connect()
    lab.send(b"bytes")
    lab.send(np.tile(SENT, 4), tos=TOS)
    lab.send(SENT, sender=1, tos=TOS)
    path = tmp_path / "x.pcapng"
    path.write_bytes(lab.file())
    check = ("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE")
    wrong = "_ws.malformed or _ws.expert.group == checksum or tcp.checksum.status == 0 or ip.checksum.status == 0"
    assert tshark(path, "frame.number", where=wrong, options=check) == []
    rows = tshark(path, "frame.packet_id", "tcp.len", "tcp.checksum.status", where="tcp", options=check)
    capture = reader.read(path)
    assert len(rows) == len(capture)
    assert [row[0] for row in rows] == [str(one) if one else "" for one in capture.packet_id.tolist()]
    assert {row[2] for row in rows} == {"1"}
    assert max(int(row[1]) for row in rows) > 60_000, "a host packet as long as IPv4 allows"
