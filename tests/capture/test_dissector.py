"""The Wireshark dissector, in tshark: it reads what `softnic inspect` reads, and calls malformed what that does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet
from scapy.utils import wrpcap

from softnic.capture import reader
from softnic.capture.flows import Analysis
from softnic.capture.packets import ENCODED
from softnic.capture.report import CaptureReport
from softnic.capture.scapy_layer import encode
from softnic.codecs import BUILT_IN, from_number, names
from softnic.commands import main
from softnic.nic.nic import Mode
from softnic.packet.ethernet import mac_of

from .conftest import Tshark
from .lab import IPS, PORTS, TOS, Lab, gradient

Dissect = Callable[..., list[list[str]]]
OFFER = (254, b"SNIC\x01\x00\x1f")
VALID = bytes(encode(gradient(64), "bounded:10"))


@pytest.fixture
def dissector(capsys: pytest.CaptureFixture[str]) -> Path:
    """Where the command says it is."""
    with pytest.raises(SystemExit) as end:
        main(["inspect", "--dissector"])
    assert end.value.code == 0
    return Path(capsys.readouterr().out.rstrip("\n"))


@pytest.fixture
def dissect(tshark: Tshark, dissector: Path) -> Dissect:
    """tshark with the dissector: frame number and the named fields of every packet where it found something."""

    def run(path: Path, *fields: str, where: str = "softnic", options: tuple[str, ...] = ()) -> list[list[str]]:
        chosen = ("-X", f"lua_script:{dissector}", *options)
        return tshark(path, "frame.number", *fields, where=where, options=chosen)

    return run


def numbers(rows: list[list[str]]) -> list[int]:
    return [int(row[0]) for row in rows]


def saved(path: Path, lab: Lab) -> Path:
    path.write_bytes(lab.file())
    return path


def tcp(sender: int = 0, payload: bytes = b"", flags: str = "A", tos: int = TOS, option: object = None) -> Packet:
    """A frame made by another tool, within the connection of a Lab."""
    src, dst = (".".join(map(str, IPS[number].to_bytes(4, "big"))) for number in (sender, 1 - sender))
    macs = [mac_of(IPS[number]).hex(":") for number in (sender, 1 - sender)]
    options = [option] if option else []
    header = TCP(sport=PORTS[sender], dport=PORTS[1 - sender], seq=9, flags=flags, options=options)
    return Ether(src=macs[0], dst=macs[1]) / IP(src=src, dst=dst, tos=tos) / header / payload


def handshake(first: object = OFFER, second: object = OFFER) -> list[Packet]:
    return [tcp(0, flags="S", option=first), tcp(1, flags="SA", option=second)]


def header(
    first: int = 0x10, codec: int = 2, parameter: int = 10, tail: int = 0, original: int = 256, **other: int
) -> bytes:
    """A payload header as told, of VALID where nothing is."""
    encoded = other.get("encoded", len(VALID) - 12)
    return bytes([first, codec, parameter & 0xFF, tail]) + original.to_bytes(4, "big") + encoded.to_bytes(4, "big")


# What NICs send


@pytest.mark.parametrize(
    ("codec", "mode"),
    [
        ("raw", "fill"),
        ("inceptionn:10", "fill"),
        ("bounded:10", "fill"),
        ("bounded:10", "packet"),
        ("bfp:7", "fill"),
        ("truncate:16", "fill"),
        ("rht:4", "fill"),
        ("exact:32", "fill"),
        ("mx:e5m2", "fill"),
        ("mx:e2m1", "fill"),
    ],
)
def test_it_says_what_inspect_says(tmp_path: Path, dissect: Dissect, codec: str, mode: Mode) -> None:
    lab = Lab(mode, codec)
    lab.connect()
    lab.send(b"untagged bytes")
    lab.send(gradient(3000).tobytes() + b"end", tos=TOS)
    lab.send(np.full(300, np.pi * 1e30, np.float32), sender=1, tos=TOS)  # shrinks with bfp and truncate alone
    path = saved(tmp_path / "x.pcapng", lab)
    analysis = Analysis(reader.read(path))
    headers, packets = analysis.headers, analysis.packets
    expected = [
        [
            *(str(packets.row[row] + 1), str(headers.codec[row]), str(headers.parameter[row])),
            *(str(from_number(int(headers.codec[row]), int(headers.parameter[row]))), "1" if headers.raw[row] else "0"),
            *(str(headers.original[row]), str(headers.body[row]), str(headers.original[row] % 4)),
            *("1", "0", f"{headers.original[row] / packets.payload[row]:.6f}"),
        ]
        for row in np.flatnonzero(headers.state == ENCODED)
    ]
    fields = ("codec", "parameter", "codec.name", "flags.raw", "original_length", "encoded_length", "tail", "version")
    all_fields = (
        *(f"softnic.{one}" for one in (*fields, "flags.padded", "ratio")),
        "softnic.malformed",
        "_ws.lua.error",
    )
    found = dissect(path, *all_fields, where="softnic.codec or _ws.malformed or _ws.lua.error")
    assert [[*row[:10], f"{float(row[10]):.6f}", *row[11:]] for row in found] == [[*row, "", ""] for row in expected]
    assert {row[7] for row in found} == {"0", "3"}, "a segment with a tail is among them"


def test_columns_and_filters(tmp_path: Path, dissect: Dissect) -> None:
    lab = Lab()
    lab.connect()
    lab.send(np.zeros(2896, np.float32), tos=TOS)
    lab.send(gradient(64), tos=TOS)
    path = saved(tmp_path / "x.pcapng", lab)
    rows = dissect(path, "_ws.col.Protocol", "_ws.col.Info", where="softnic.ratio > 100")
    assert len(rows) == 2, "as it left, and as it arrived"
    for _, protocol, info in rows:
        assert protocol == "SOFTNIC"
        assert info.startswith("softnic bounded:10 11584 -> 46  ")
    assert len(dissect(path, where='softnic.codec == "bounded" and softnic.ratio < 100')) == 2


def test_padding(tmp_path: Path, dissect: Dissect) -> None:
    path = tmp_path / "x.pcap"
    wrpcap(str(path), [*handshake(), tcp(payload=header(0x13, original=7, encoded=7, tail=3) + b"1234567" + b"pad")])
    rows = dissect(path, "softnic.body", "softnic.padding", "_ws.col.Info", where="softnic.flags.padded == 1")
    assert rows[0][:3] == ["3", b"1234567".hex(), b"pad".hex()]
    assert "softnic bounded:10 RAW PADDED 7 -> 7 " in rows[0][3]


# The handshake


def test_the_option_of_a_syn(tmp_path: Path, dissect: Dissect) -> None:
    lab = Lab()
    lab.connect()
    path = saved(tmp_path / "x.pcapng", lab)
    each = tuple(f"softnic.option.{name}" for name in names())
    rows = dissect(path, "softnic.option.version", "softnic.option.codecs", *each, "_ws.col.Info")
    assert [row[1:-1] for row in rows] == [["1", f"0x{BUILT_IN:04x}", *("1" for _ in names())]] * 4, (
        "both SYNs at both wire sides"
    )
    assert all(f"softnic {','.join(names())}" in row[-1] for row in rows)


def test_options_that_are_none_of_ours(tmp_path: Path, dissect: Dissect) -> None:
    others = (254, b"SNIC\x01\x00"), (254, b"SNIX\x01\x00\x1f"), (253, b"SNIC\x01\x00\x1f"), None
    path = tmp_path / "x.pcap"
    wrpcap(str(path), [handshake(one)[0] for one in (*others, (254, b"SNIC\x02\x00\x1f"), (254, b"SNIC\x01\x80\x05"))])
    rows = dissect(path, "softnic.option.version", "softnic.option.codecs", "softnic.option.inceptionn")
    assert rows == [["5", "2", "", ""], ["6", "1", "0x8005", "0"]]
    assert numbers(dissect(path, where="softnic.option.unknown")) == [5]


@pytest.mark.parametrize("answer", [None, (254, b"SNIC\x02\x00\x1f")])
def test_plain_tcp_is_left_alone(tmp_path: Path, dissect: Dissect, answer: object) -> None:
    """A side that offers nothing takes no payload headers, whatever its bytes look like; nor does what has no ToS."""
    path = tmp_path / "x.pcap"
    wrpcap(str(path), [*handshake(second=answer), tcp(payload=VALID), tcp(payload=VALID, tos=0)])
    assert dissect(path, where="softnic.version") == []
    wrpcap(str(path), [*handshake(), tcp(payload=VALID, tos=0), tcp(), tcp(payload=VALID, tos=TOS | 1)])
    assert numbers(dissect(path, where="softnic.version")) == [5], "the bits of ECN select nothing"


def test_without_a_handshake_valid_headers_are_enough(tmp_path: Path, dissect: Dissect) -> None:
    path = tmp_path / "x.pcap"
    frames = [
        tcp(payload=VALID),
        tcp(payload=b"tagged, and no header"),
        tcp(payload=b"short"),
        tcp(payload=VALID, tos=0),
    ]
    wrpcap(str(path), frames)
    assert numbers(dissect(path)) == [1]
    assert dissect(path, options=("-o", "softnic.assume:FALSE")) == []
    wrpcap(str(path), [handshake()[0], *frames])
    assert numbers(dissect(path, where="softnic.version")) == [2], "half a handshake is none"


# What is malformed


def test_malformed_headers(tmp_path: Path, dissect: Dissect) -> None:
    body = VALID[12:]
    wrong = [
        ("version", header(0x20) + body),
        ("flags", header(0x14) + body),
        ("codec", header(codec=9) + body),
        ("codec", header(codec=0, parameter=0, original=len(body), tail=len(body) % 4) + body),
        ("parameter", header(parameter=24) + body),
        ("parameter", header(parameter=-1) + body),
        ("parameter", header(codec=3, parameter=16) + body),
        ("parameter", header(codec=4, parameter=7) + body),
        ("parameter", header(0x11, codec=0, parameter=1, original=len(body), tail=len(body) % 4) + body),
        ("tail", header(tail=1) + body),
        ("length", header(encoded=len(body) + 1) + body),
        ("length", header(encoded=len(body) - 1) + body),
        ("length", header(0x12) + body),
        ("length", header(0x11, original=len(body) + 4, tail=len(body) % 4) + body),
        ("length", header(original=0) + body),
        ("length", header(original=3, tail=3, encoded=2) + b"ab"),
        ("length", header(codec=1, original=256, encoded=15) + bytes(15)),
        ("length", header(codec=2, original=260, encoded=1) + bytes(1)),
        ("length", header(codec=3, parameter=7, original=256, encoded=3) + bytes(3)),
        ("length", header(codec=4, parameter=9, original=36, encoded=17) + bytes(17)),
        ("length", header(codec=5, parameter=4, original=1000, encoded=16) + bytes(16)),
        ("short", VALID[:11]),
    ]
    lab = Lab()
    lab.connect()
    for _, payload in wrong:
        lab.other_frame(bytes(tcp(payload=payload)))
    path = saved(tmp_path / "x.pcapng", lab)
    report = CaptureReport(Analysis(reader.read(path)), str(path))
    kinds = ("version", "flags", "codec", "parameter", "tail", "length", "short")
    rows = dissect(path, *(f"softnic.malformed.{kind}" for kind in kinds), "_ws.col.Info", where="softnic.malformed")
    found = [[kind for kind, flag in zip(kinds, row[1:], strict=False) if flag] for row in rows]
    assert found == [[kind] for kind, _ in wrong] * 2, "all as they left, then all as they arrived"
    for number, *_, info in rows:
        told = report.packet(int(number))
        assert told is not None
        assert told[0].state == "malformed" or told[0].problem, info
        assert "softnic malformed: " in info


# Captures by other means


def test_other_tos(tmp_path: Path, dissect: Dissect) -> None:
    lab = Lab()
    lab.connect()
    lab.send(gradient(64), tos=TOS)
    lab.other_frame(bytes(tcp(payload=VALID, tos=0x2C)))
    tagged = saved(tmp_path / "x.pcapng", lab)
    seen = {}
    for options in ("", "0x2c", "44,0x28"):
        rows = dissect(tagged, "ip.dsfield", where="softnic.version", options=("-o", f"softnic.offloads:{options}"))
        seen[options] = {row[1] for row in rows}
    assert seen == {"": {"0x28"}, "0x2c": {"0x2c"}, "44,0x28": {"0x28", "0x2c"}}
    told = tmp_path / "y.pcapng"
    told.write_bytes(tagged.read_bytes().replace(b"offloads 0x28=", b"offloads 0x2c="))
    assert {row[1] for row in dissect(told, "ip.dsfield", where="softnic.version")} == {"0x2c"}


@pytest.mark.parametrize("twice", [(), ("-2",)])
def test_vxlan(tmp_path: Path, dissect: Dissect, twice: tuple[str, ...]) -> None:
    """Live captures of the wire show the outer packets; their ToS is another one."""
    outer = (
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        / IP(src="192.0.2.1", dst="192.0.2.2")
        / UDP(sport=4789, dport=4789)
        / VXLAN(vni=1)
    )
    path = tmp_path / "x.pcap"
    wrpcap(str(path), [outer / one for one in (*handshake(), tcp(payload=VALID), tcp(payload=VALID, tos=0))])
    rows = dissect(path, "softnic.original_length", options=twice)
    assert rows == [["1", ""], ["2", ""], ["3", "256"]]


def test_a_snaplen(tmp_path: Path, dissect: Dissect) -> None:
    """Lengths are the headers'; what was not captured is not taken for missing."""
    lab = Lab(snaplen=100)
    lab.connect()
    lab.send(gradient(64), tos=TOS)
    path = saved(tmp_path / "x.pcapng", lab)
    rows = dissect(path, "softnic.original_length", "softnic.body", "softnic.malformed", where="softnic.version")
    assert [(row[1], len(row[2]) // 2, row[3]) for row in rows] == [("256", 100 - 14 - 20 - 32 - 12, "")] * 2
    whole = bytes(tcp(payload=VALID))
    start = Ether(whole[: 14 + 20 + 20 + 11])
    start.wirelen = len(whole)
    cut = tmp_path / "x.pcap"
    wrpcap(str(cut), [*handshake(), start])
    rows = dissect(cut, "softnic.malformed", "_ws.col.Info", where="softnic.cut")
    assert numbers(rows) == [3]
    assert rows[0][1] == ""
    assert rows[0][2].startswith("softnic header cut off ")
