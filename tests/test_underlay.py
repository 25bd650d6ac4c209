"""Addresses below the NICs: as they are written, as sockets and C have them, and the choice among those of a name."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import underlay
from softnic.link.endpoint import packed, unpacked
from softnic.underlay import BOTH, IPV4, IPV6

PORTS = st.integers(0, 0xFFFF)
IPS = st.ip_addresses().map(str).map(underlay.numeric)
NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)


@given(IPS | NAMES, PORTS)
def test_what_is_written_is_read_again(host: str, port: int) -> None:
    assert underlay.parse(underlay.text((host, port))) == (host, port)
    assert underlay.parse(underlay.bracketed(host), port) == (host, port)
    assert underlay.parse(host, port) == (host, port)
    assert ("[" in underlay.text((host, port))) == (":" in host)


@given(st.text(max_size=40) | st.from_regex(r"\[?[0-9a-f:.%x]{0,30}\]?(:[0-9]{0,6})?", fullmatch=True))
def test_anything_else_is_one_error(written: str) -> None:
    """What is accepted is the same address when it is written again."""
    said = ""
    try:
        address = underlay.parse(written)
    except ValueError as error:
        said = str(error)
    if said:
        assert said.startswith(f"{written!r} is not HOST:PORT")
    else:
        assert underlay.parse(underlay.text(address)) == address


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("2001:db8::1:4789", "an IPv6 address stands in brackets, [ADDRESS]:PORT"),
        ("::1", "an IPv6 address stands in brackets, [ADDRESS]:PORT"),
        ("[192.0.2.1]:4789", "'192.0.2.1' is not an IPv6 address"),
        ("[2001:db8::g]:4789", "'2001:db8::g' is not an IPv6 address"),
        ("[]:4789", "'' is not an IPv6 address"),
    ],
)
def test_the_error_says_how_an_ipv6_address_is_written(written: str, why: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole text is compared
        underlay.parse(written)
    assert str(raised.value) == f"{written!r} is not HOST:PORT: {why}"


@pytest.mark.parametrize(
    "written", ["", ":1", "host", "host:", "host:x", "host:65536", "[::1]", "[::1]1", "[a:1", "a]:1"]
)
def test_malformed_addresses(written: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        underlay.parse(written)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("node1:4789", ("node1", 4789)),
        ("192.0.2.1:0", ("192.0.2.1", 0)),
        ("[2001:DB8:0:0::1]:4789", ("2001:db8::1", 4789)),
        ("[fe80::1%eth0]:4789", ("fe80::1%eth0", 4789)),
        ("[::ffff:192.0.2.1]:4789", ("192.0.2.1", 4789)),
        ("[::ffff:c000:201]:4789", ("192.0.2.1", 4789)),
    ],
)
def test_addresses_are_read_as_they_are_usually_written(written: str, address: underlay.Address) -> None:
    assert underlay.parse(written) == address


@given(IPS, PORTS)
def test_c_has_what_sockets_have(host: str, port: int) -> None:
    families = BOTH if underlay.family(host) == IPV4 else (IPV6,)
    for family in families:
        endpoint = packed((host, port), family)
        assert len(endpoint) == 32
        assert unpacked(endpoint) == (host, port)
        assert int.from_bytes(endpoint[:2], "little") == family


@given(st.ip_addresses(v=4), PORTS)
def test_a_mapped_address_is_the_address_of_ipv4(ip: ipaddress.IPv4Address, port: int) -> None:
    assert underlay.of_socket((f"::ffff:{ip}", port, 0, 0)) == (str(ip), port)
    assert underlay.numeric(f"::ffff:{ip}") == str(ip)
    assert underlay.family(f"::ffff:{ip}") == IPV4


def test_a_link_local_address_keeps_its_interface() -> None:
    index = socket.if_nametoindex("lo")
    assert underlay.of_socket(("fe80::1", 5, 0, index)) == ("fe80::1%lo", 5)
    assert underlay.socket_address(("fe80::1%lo", 5)) == ("fe80::1", 5, 0, index)
    assert unpacked(packed(("fe80::1%lo", 5), IPV6)) == ("fe80::1%lo", 5)
    assert underlay.of_socket(("fe80::1", 5, 0, 99_999)) == ("fe80::1%99999", 5)


class Resolver:
    """Names with several addresses, and the routes to them."""

    def __init__(self, patch: pytest.MonkeyPatch, found: list[str], routed: set[str]) -> None:
        self.found, self.routed = found, routed
        patch.setattr(socket, "getaddrinfo", self.look_up)
        patch.setattr(underlay, "source", lambda host: "192.0.2.9" if host in routed else None)

    def look_up(self, host: str, port: int, family: int, _kind: int) -> list[tuple[object, ...]]:
        wanted = [each for each in self.found if family in (0, underlay.family(each))]
        if not wanted:
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is unknown")
        return [(underlay.family(each), 2, 17, "", underlay.socket_address((each, port))) for each in wanted]


def test_an_address_with_a_route_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ["2001:db8::2", "192.0.2.2", "2001:db8::3"]
    resolver = Resolver(monkeypatch, found, {"192.0.2.2", "2001:db8::3"})
    assert [host for host, _ in underlay.addresses(("node", 7))] == ["192.0.2.2", "2001:db8::3", "2001:db8::2"]
    assert underlay.addresses(("node", 7), (IPV6,)) == [("2001:db8::3", 7), ("2001:db8::2", 7)]
    assert underlay.addresses(("node", 7), (IPV4,)) == [("192.0.2.2", 7)]
    resolver.routed.clear()  # the network is not up yet: the resolver's order
    assert [host for host, _ in underlay.addresses(("node", 7))] == found


def test_a_name_without_an_address_of_the_family_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, ["192.0.2.2"], set())
    with pytest.raises(OSError, match="no IPv6 address for 'node'"):
        underlay.addresses(("node", 7), (IPV6,))


def test_local_addresses() -> None:
    assert all(map(underlay.is_local, ("127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1")))
    assert not any(map(underlay.is_local, ("192.0.2.1", "2001:db8::1", "localhost")))
    assert underlay.source("127.0.0.1") == "127.0.0.1"
