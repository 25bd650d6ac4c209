"""Ethernet, ARP, IPv4 and ICMP parsers: whole packets, truncated ones, and trailing garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.packet import arp, ethernet, icmp, ipv4
from softnic.packet.ethernet import ParseError

macs = st.binary(min_size=6, max_size=6)
unicast = macs.map(lambda mac: bytes([mac[0] & 0xFE]) + mac[1:])
numbers = st.integers(0, 2**32 - 1)


@given(macs, macs, st.integers(0, 65535), st.binary(max_size=100))
def test_ethernet(destination: bytes, source: bytes, kind: int, payload: bytes) -> None:
    frame = ethernet.build(destination, source, kind, payload)
    assert ethernet.parse(frame) == (destination, source, kind, payload)


@given(st.sampled_from([arp.REQUEST, arp.REPLY]), unicast, numbers, macs, numbers, st.binary(max_size=30))
def test_arp(operation: int, mac: bytes, ip: int, target: bytes, target_ip: int, garbage: bytes) -> None:
    packet = arp.Arp(operation, mac, ip, target, target_ip)
    data = arp.build(packet)
    assert arp.parse(data + garbage) == packet
    for cut in range(len(data)):
        with pytest.raises(ParseError):
            arp.parse(data[:cut])


@pytest.mark.parametrize("place", [0, 2, 4, 5, 6])
def test_arp_about_something_else(place: int) -> None:
    data = bytearray(arp.build(arp.Arp(arp.REQUEST, bytes(6), 1, bytes(6), 2)))
    data[place] ^= 0x40
    with pytest.raises(ParseError):
        arp.parse(bytes(data))


@given(numbers, numbers, st.integers(0, 255), st.binary(max_size=100), st.binary(max_size=30))
def test_ipv4(src: int, dst: int, protocol: int, payload: bytes, garbage: bytes) -> None:
    packet = ipv4.Packet(src, dst, protocol, payload)
    data = ipv4.build(packet, identification=7)
    assert ipv4.parse(data + garbage) == packet
    for cut in range(len(data)):
        with pytest.raises(ParseError):
            ipv4.parse(data[:cut])


@given(st.integers(0, 19), st.integers(0, 7))
def test_no_bit_of_an_ipv4_header_may_flip(place: int, bit: int) -> None:
    data = bytearray(ipv4.build(ipv4.Packet(1, 2, 3, b"payload")))
    data[place] ^= 1 << bit
    with pytest.raises(ParseError):
        ipv4.parse(bytes(data))


def test_a_fragment() -> None:
    data = bytearray(ipv4.build(ipv4.Packet(1, 2, 3, b"payload")))
    data[6] = 0x20
    data[10:12] = bytes(2)
    data[10:12] = ipv4.checksum(bytes(data[:20])).to_bytes(2, "big")
    with pytest.raises(ParseError, match="fragment"):
        ipv4.parse(bytes(data))


@given(st.sampled_from([icmp.ECHO_REQUEST, icmp.ECHO_REPLY]), st.integers(0, 65535), st.binary(max_size=100))
def test_icmp(kind: int, number: int, data: bytes) -> None:
    echo = icmp.Echo(kind, number, 65535 - number, data)
    assert icmp.parse(icmp.build(echo)) == echo


@pytest.mark.parametrize("kind", [4, 5, 13])
def test_other_icmp(kind: int) -> None:
    with pytest.raises(ParseError, match=f"type {kind}"):
        icmp.parse(icmp.build(icmp.Echo(kind, 1, 1, b"")))


@given(st.binary(max_size=80))
def test_garbage_raises_the_one_error(data: bytes) -> None:
    for parse in (ethernet.parse, arp.parse, ipv4.parse, icmp.parse):
        try:
            parse(data)
        except ParseError:
            continue
        assert len(data) >= 8


def test_addresses() -> None:
    assert ipv4.address("10.77.0.1") == 0x0A4D0001
    assert ipv4.text(0x0A4D0001) == "10.77.0.1"
    for text in ("", "10.77.0", "10.77.0.256", "10.77.0.1.1", "10.77.0.-1", "ten", "10.77.0.\u0661"):
        with pytest.raises(ValueError, match="not an IPv4 address"):
            ipv4.address(text)


def test_the_checksum_of_rfc_1071() -> None:
    assert ipv4.checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
