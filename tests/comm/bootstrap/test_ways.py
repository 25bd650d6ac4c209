"""The family of addresses that the NICs of a job use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import underlay
from softnic.comm.bootstrap import host_address, ways
from softnic.comm.bootstrap.host_address import Wire


def four(last: int, mtu: int = 1500) -> Wire:
    return Wire(f"192.0.2.{last}", 0, mtu)


def six(last: int, mtu: int = 1500) -> Wire:
    return Wire(f"2001:db8::{last}", 0, mtu)


def test_all_nics_use_the_only_family_that_all_hosts_have() -> None:
    hosts = [[four(1), six(1)], [six(2, 1400)], [four(3), six(3)]]
    assert ways.choose(0, hosts, encrypted=False) == (
        ("2001:db8::1", 0),
        ["2001:db8::1", "2001:db8::2", "2001:db8::3"],
        1400 - 70,
    )
    assert ways.choose(1, [[four(1)], [six(2), four(2, 9000)]], encrypted=True).mtu == 1500 - 74


def test_of_two_families_the_one_that_more_hosts_prefer() -> None:
    def bind(*hosts: list[Wire]) -> str:
        return ways.choose(0, hosts, encrypted=False).bind[0]

    assert bind([four(1), six(1)], [six(2), four(2)]) == "192.0.2.1"
    assert bind([four(1), six(1)], [six(2), four(2)], [six(3), four(3)]) == "2001:db8::1"


def test_hosts_without_a_common_family_are_named() -> None:
    with pytest.raises(ValueError, match=r"192\.0\.2\.2 has IPv4 alone and the one at 2001:db8::3 IPv6 alone"):
        ways.choose(0, [[four(1), six(1)], [four(2)], [six(3)]], encrypted=False)


@given(st.lists(st.sampled_from(["4", "6", "46", "64"]), min_size=2, max_size=6), st.booleans())
def test_every_host_is_reached_where_its_nic_is_bound(families: list[str], encrypted: bool) -> None:
    kinds = {"4": four, "6": six}
    hosts = [[kinds[each](number) for each in own] for number, own in enumerate(families, 1)]
    if {"4", "6"} <= set(families):
        with pytest.raises(ValueError, match="IPv6 alone"):
            ways.choose(0, hosts, encrypted)
        return
    chosen = [ways.choose(own, hosts, encrypted) for own in range(len(hosts))]
    assert [each.bind[0] for each in chosen] == chosen[0].peers
    assert len({(tuple(each.peers), each.mtu) for each in chosen}) == 1


def routes(patch: pytest.MonkeyPatch, found: dict[str, str], interfaces: dict[str, list[str]]) -> None:
    """Have the kernel route to these hosts from these addresses of this one, and to no others."""
    patch.setattr(underlay, "source", found.get)
    patch.setattr(host_address, "_interfaces", lambda: interfaces)


def hosts_of(**environment: str) -> list[str]:
    return [wire.host for wire in host_address.wires(environment)]


def test_the_family_of_the_named_host_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"2001:db8::9": "2001:db8::5", "192.0.2.9": "192.0.2.5", "192.0.2.1": "10.0.0.5", "2001:db8::1": "fd00::5"}
    routes(monkeypatch, found, {})
    assert hosts_of(MASTER_ADDR="2001:db8::9") == ["2001:db8::5", "10.0.0.5"]
    assert hosts_of(MASTER_ADDR="192.0.2.9") == ["192.0.2.5", "fd00::5"]
    assert hosts_of(SOFTNIC_STORE="[2001:db8::9]:29999", MASTER_ADDR="192.0.2.9") == ["2001:db8::5", "192.0.2.5"]
    assert hosts_of(MASTER_ADDR="127.0.0.1") == ["10.0.0.5", "fd00::5"]


def test_a_host_with_one_family_has_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    routes(monkeypatch, {"2001:db8::1": "fd00::5"}, {"lo": ["127.0.0.1", "::1"], "wire0": ["fe80::5", "fd00::5"]})
    assert hosts_of() == ["fd00::5"]
    routes(monkeypatch, {}, {"lo": ["127.0.0.1", "::1"], "wire0": ["2001:db8::7"], "wire1": ["192.0.2.7"]})
    assert hosts_of() == ["192.0.2.7", "2001:db8::7"]
    routes(monkeypatch, {}, {"lo": ["127.0.0.1", "::1"]})
    assert hosts_of() == ["127.0.0.1"]


def test_an_interface_stands_for_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    routes(monkeypatch, {}, {"wire0": ["2001:db8::7", "192.0.2.7", "2001:db8::8"], "wire1": ["2001:db8::9"]})
    assert host_address.wires({"SOFTNIC_WIRE": "wire0:4789"}) == [
        Wire("192.0.2.7", 4789, 1500),
        Wire("2001:db8::7", 4789, 1500),
    ]
    assert hosts_of(SOFTNIC_WIRE="wire1") == ["2001:db8::9"]


def test_the_host_of_mpirun_may_have_either_family() -> None:
    uri = "1.0;tcp://192.0.2.1,10.0.0.1:5000;tcp6://[2001:db8::1,fd00::1]:5001"
    assert host_address.mpirun_addresses({"OMPI_MCA_orte_hnp_uri": uri}) == [
        *("192.0.2.1", "10.0.0.1"),
        *("2001:db8::1", "fd00::1"),
    ]
