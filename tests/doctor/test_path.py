"""Between two hosts with faults: a firewall in either direction, a small MTU, other keys and versions, nobody there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from softnic import underlay
from softnic.cluster.netns_lab.host import WIRE_PORT, NetnsHost, join
from softnic.doctor import path
from softnic.doctor.findings import Finding, exit_code
from softnic.doctor.listener import ProbeListener
from tests import needs

pytestmark = needs.hosts
KEY = bytes(range(32))
DROP_UDP = """
add table inet faults
add chain inet faults input { type filter hook input priority 0; }
add rule inet faults input meta l4proto udp drop
"""


@pytest.fixture
def hosts() -> Iterator[tuple[NetnsHost, NetnsHost]]:
    with NetnsHost() as left, NetnsHost() as right:
        join(left, right)
        yield left, right


@contextmanager
def listening(host: NetnsHost, **given: Any) -> Iterator[None]:
    over = threading.Event()
    with host.entered():
        listener = ProbeListener((underlay.ANY, WIRE_PORT), **given)
    thread = threading.Thread(target=listener.serve, args=(over.is_set,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        listener.close()


def check(host: NetnsHost, measure: bool = False, **given: Any) -> path.PathResult:
    with host.entered():
        return path.check(path.PathSettings((host.peer, WIRE_PORT), measure=measure, **given))


def by_level(findings: list[Finding], level: str) -> dict[str, Finding]:
    """Return the findings of a level by check; a problem or a note must say why and what to do."""
    found = {each.check: each for each in findings if each.level == level}
    assert level == "ok" or all(each.why and each.fix for each in found.values())
    return found


def test_nothing_is_wrong_between_two_good_hosts(hosts: tuple[NetnsHost, NetnsHost]) -> None:
    left, right = hosts
    with listening(right, key=KEY):
        result = check(left, key=KEY, mtu=1426, measure=True)
    assert exit_code(result.findings) == 0
    assert set(by_level(result.findings, "ok")) == {"peer", "version", "key", "time", "mtu", "link"}
    assert result.rate_bps is not None
    assert result.rate_bps > 1e6


@needs.ipv6
def test_hosts_with_ipv6_alone_have_20_bytes_less() -> None:
    with NetnsHost() as left, NetnsHost() as right:
        join(left, right, ipv6=True)
        right.run("ip", "link", "set", "eth0", "mtu", "1400")
        with listening(right, key=KEY):
            found = by_level(check(left, key=KEY, mtu=1406).findings, "problem")
        right.run("ip", "link", "set", "eth0", "mtu", "1500")
        with listening(right, key=KEY):
            good = check(left, key=KEY, mtu=1406, measure=True)
    assert set(found) == {"mtu", "path"}
    assert "packets of 1500 bytes, but 1404 pass" in found["mtu"].text
    assert found["mtu"].fix.startswith("softnicd --mtu 1310 ")
    assert exit_code(good.findings) == 0
    assert by_level(good.findings, "ok")["peer"].text.startswith("[2001:db8:2::2]:4789 (IPv6) answers by UDP both ways")


def test_a_name_with_two_addresses_is_checked_at_the_one_that_answers(
    hosts: tuple[NetnsHost, NetnsHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = hosts
    found = [("2001:db8::9", WIRE_PORT), (right.address, WIRE_PORT)]
    monkeypatch.setattr(underlay, "addresses", lambda peer, *_: found if peer[0] == "node-b" else [peer])
    left.peer = "node-b"
    with listening(right):
        findings = check(left).findings
    assert exit_code(findings) == 0
    assert by_level(findings, "ok")["peer"].text.startswith(f"{right.address}:4789 (IPv4) answers")
    findings = check(left).findings  # nobody answers: what is wrong with each of them
    assert set(by_level(findings, "problem")) == {"peer", "way"}
    assert by_level(findings, "problem")["way"].text.startswith(
        "no way to [2001:db8::9]:4789 (IPv6): Network is unreach"
    )


def test_an_mtu_that_leaves_no_room_for_the_key(hosts: tuple[NetnsHost, NetnsHost]) -> None:
    left, right = hosts
    with listening(right, key=KEY):
        found = by_level(check(left, key=KEY, mtu=1427).findings, "problem")
    assert set(found) == {"mtu"}
    assert "packets of 1501 bytes, but 1500 pass" in found["mtu"].text
    assert found["mtu"].fix.startswith("softnicd --mtu 1426 ")


@pytest.mark.parametrize("small", [0, 1])
def test_packets_that_vanish_on_the_way(hosts: tuple[NetnsHost, NetnsHost], small: int) -> None:
    """A host with a smaller MTU drops larger packets without an error for the sender; veth allows for a VLAN tag."""
    hosts[small].run("ip", "link", "set", "eth0", "mtu", "1400")
    left, right = hosts
    with listening(right):
        findings = check(left, mtu=1450).findings
    found = by_level(findings, "problem")
    passes = 1404 if small else 1400
    assert f"packets of 1500 bytes, but {passes} pass" in found["mtu"].text
    assert found["mtu"].fix.startswith(f"softnicd --mtu {passes - 50} ")
    assert ("path" in found) == (small == 1)  # the other way the host's own interface says so


@needs.tools("nft")
@pytest.mark.parametrize(("closed", "says"), [(0, "its answers do not arrive"), (1, "do not arrive at 192.0.2.2")])
def test_a_firewall_that_drops_udp_one_way(hosts: tuple[NetnsHost, NetnsHost], closed: int, says: str) -> None:
    for command in DROP_UDP.strip().splitlines():
        hosts[closed].run("nft", command)
    left, right = hosts
    with listening(right):
        [found] = check(left).findings
    assert (found.check, found.level) == ("firewall", "problem")
    assert says in found.text
    assert f"on {right.address if closed else 'this host'}: nft insert rule" in found.fix


def test_a_port_that_a_nic_has_is_a_note(hosts: tuple[NetnsHost, NetnsHost]) -> None:
    left, right = hosts
    with left.entered():
        nic = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with nic, listening(right):
        nic.bind(("0.0.0.0", WIRE_PORT))
        findings = check(left).findings
    assert exit_code(findings) == 0
    assert set(by_level(findings, "note")) == {"port"}


@needs.tools("nft")
def test_tcp_that_is_closed_is_a_note(hosts: tuple[NetnsHost, NetnsHost]) -> None:
    left, right = hosts
    for command in DROP_UDP.replace("l4proto udp drop", "l4proto tcp reject").strip().splitlines():
        right.run("nft", command)
    with listening(right):
        findings = check(left).findings
    assert exit_code(findings) == 0
    assert set(by_level(findings, "note")) == {"tcp"}


@pytest.mark.parametrize(
    ("here", "there", "says"),
    [(KEY, KEY[::-1], "is another one"), (KEY, None, "was given none"), (None, KEY, "this host was given none")],
)
def test_another_key(hosts: tuple[NetnsHost, NetnsHost], here: bytes, there: bytes, says: str) -> None:
    left, right = hosts
    with listening(right, key=there):
        found = by_level(check(left, key=here).findings, "problem")
    assert set(found) == {"key"}
    assert says in found["key"].text


def test_another_version(hosts: tuple[NetnsHost, NetnsHost]) -> None:
    left, right = hosts
    with listening(right, version="0.0.9"):
        found = by_level(check(left, version="0.1.0").findings, "problem")
    assert set(found) == {"version"}
    assert "softnic 0.1.0 here, 0.0.9 on 192.0.2.2" in found["version"].text


def test_a_host_without_listener(hosts: tuple[NetnsHost, NetnsHost]) -> None:
    [found] = check(hosts[0]).findings
    assert found.level == "problem"
    assert found.fix == "softnic doctor --listen, on 192.0.2.2"


@pytest.mark.slow
def test_a_host_that_is_gone(hosts: tuple[NetnsHost, NetnsHost]) -> None:
    left, right = hosts
    right.run("ip", "link", "set", "eth0", "down")
    [found] = check(left).findings
    assert found.level == "problem"
    assert found.fix.startswith("ping 192.0.2.2; ")
