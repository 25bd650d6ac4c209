"""The scapy layer reads what the NIC writes, and makes what the codecs read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.inet import IP, TCP
from scapy.packet import Packet, Padding, Raw
from scapy.utils import PcapNgReader

from softnic.capture import scapy_layer
from softnic.capture.scapy_layer import SoftnicPayload
from softnic.codecs import DecodeError, get
from softnic.codecs.payload import PayloadHeader, decode_payload

from .lab import PORTS, TOS, Lab, gradient


@pytest.fixture(autouse=True)
def _unbound() -> Iterator[None]:
    yield
    scapy_layer.unbind()


def packets(path: Path, lab: Lab) -> list[Packet]:
    path.write_bytes(lab.file())
    with PcapNgReader(str(path)) as found:
        return list(found)


@pytest.mark.parametrize("ports", [(), (PORTS[1],), (PORTS[0],)])
def test_floats_of_a_capture(tmp_path: Path, ports: tuple[int, ...]) -> None:
    lab = Lab()
    lab.connect()
    lab.send(b"untagged bytes")
    sent = gradient(10_000)
    lab.send(sent, tos=TOS)
    scapy_layer.bind(*ports)
    found = packets(tmp_path / "x", lab)
    layers = [packet[SoftnicPayload] for packet in found if SoftnicPayload in packet]
    half = layers[: len(layers) // 2]  # the frames as they left; the other half as they arrived
    decoded = np.concatenate([layer.floats() for layer in half])
    assert decoded.tobytes() == get("bounded:10").roundtrip(sent).tobytes()
    assert {layer.sprintf("%codec% %parameter% %version%") for layer in layers} == {"bounded 10 1"}
    plain = [packet for packet in found if Raw in packet and bytes(packet[TCP].payload) == b"untagged bytes"]
    assert len(plain) == 4


def test_nothing_is_bound_unless_asked(tmp_path: Path) -> None:
    lab = Lab()
    lab.connect()
    lab.send(gradient(100), tos=TOS)
    assert not any(SoftnicPayload in packet for packet in packets(tmp_path / "x", lab))


def test_other_ports_and_tos_are_left_alone() -> None:
    payload = scapy_layer.encode(gradient(16), "bounded:10")
    wire = bytes(IP(tos=TOS) / TCP(sport=1, dport=2) / payload)
    for ports, offloads, seen in (((2,), (TOS,), True), ((3,), (TOS,), False), ((2,), (0x2C,), False)):
        scapy_layer.bind(*ports, offloads=offloads)
        assert (SoftnicPayload in IP(wire)) is seen


@pytest.mark.parametrize("codec", ["bounded:10", "inceptionn:8", "bfp:7", "truncate:16", "raw"])
def test_what_it_makes_the_codecs_read(codec: str) -> None:
    floats = gradient(100)
    packet = scapy_layer.encode(floats, get(codec))
    assert decode_payload(bytes(packet)) == get(codec).roundtrip(floats).tobytes()
    scapy_layer.bind()
    again = IP(bytes(IP(tos=TOS | 1) / TCP() / packet))
    assert again[SoftnicPayload].floats().tobytes() == get(codec).roundtrip(floats).tobytes()


def test_padding_and_raw() -> None:
    header = PayloadHeader(get("bounded:10"), original=7, encoded=7, raw=True, padded=True)
    scapy_layer.bind()
    packet = IP(bytes(IP(tos=TOS) / TCP() / Raw(header.pack() + b"1234567" + b"padding")))
    layer = packet[SoftnicPayload]
    assert str(layer.flags) == "RAW+PADDED"
    assert layer.restore() == b"1234567"
    assert (layer.original_length, layer.encoded_length, layer.tail) == (7, 7, 3)
    assert packet[Padding].load == b"padding"
    assert layer.floats().tobytes() == b"1234"


def test_what_contradicts_itself_stays_raw_and_is_an_error_if_forced() -> None:
    broken = bytearray(bytes(scapy_layer.encode(gradient(16), "bounded:10")))
    broken[11] += 1
    scapy_layer.bind()
    packet = IP(bytes(IP(tos=TOS) / TCP() / Raw(bytes(broken))))
    assert SoftnicPayload not in packet
    with pytest.raises(DecodeError):
        SoftnicPayload(bytes(broken)).floats()
