"""The addresses that a host gathers, and those of a token's servers."""

from __future__ import annotations

import socket

import pytest

from softnic import underlay
from softnic.cluster.netns_lab.host import NetnsHost, join
from softnic.link.reach import gather
from softnic.link.reach.token import Grant, Token, TokenError
from softnic.underlay import IPV4, IPV6, Address
from tests import needs
from tests.link.reach.world import SECRET


def token(*servers: Address) -> Token:
    return Token.make(SECRET, servers, Grant(bytes(16), 2, 2**40), bytes(32))


def test_addresses_of_this_host_are_usable_by_others_or_loopback() -> None:
    found = gather.local_addresses(4789)
    assert found
    assert all(port == 4789 and underlay.is_address(host) for host, port in found)
    assert len(set(found)) == len(found)
    local = [underlay.is_local(host) for host, _ in found]
    assert not any(local) or found == [("127.0.0.1", 4789)]
    assert not any(underlay.is_link_local(host) for host, _ in found)


def test_only_families_of_the_socket_are_gathered() -> None:
    assert {underlay.family(host) for host, _ in gather.local_addresses(1, (IPV4,))} == {IPV4}
    assert {underlay.family(host) for host, _ in gather.local_addresses(1, (IPV6,))} == {IPV6}


@needs.hosts
@needs.ipv6
def test_all_interfaces_are_gathered_and_loopback_alone_only_without_any() -> None:
    with NetnsHost() as left, NetnsHost() as right:
        with left.entered():
            assert gather.local_addresses(7) == [("127.0.0.1", 7)]
            assert gather.local_addresses(7, (IPV6,)) == [("::1", 7)]
        join(left, right)
        join(left, right, net=1, devices=("eth1", "eth1"))
        join(left, right, net=2, devices=("eth2", "eth2"), ipv6=True)
        with left.entered():
            assert gather.local_addresses(7) == [("192.0.2.1", 7), ("192.0.3.1", 7), ("2001:db8:4::1", 7)]


def test_servers_with_addresses_are_resolved() -> None:
    found = gather.resolved(token(("192.0.2.1", 1), ("2001:db8::1", 2)))
    assert found == [[("192.0.2.1", 1)], [("2001:db8::1", 2)]]
    assert gather.resolved(token(("192.0.2.1", 1), ("2001:db8::1", 2)), (IPV4,)) == [[("192.0.2.1", 1)], []]


def test_a_name_without_an_address_is_passed_over_and_only_such_names_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*_asked: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    numeric = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest: unknown() if host == "nowhere.invalid" else numeric(host, *rest)
    )
    assert gather.resolved(token(("nowhere.invalid", 1), ("192.0.2.1", 1))) == [[], [("192.0.2.1", 1)]]
    with pytest.raises(TokenError, match=r"can use: nowhere\.invalid:1"):
        gather.resolved(token(("nowhere.invalid", 1)))
