"""Which ports of a relay are whose, and what is forwarded where."""

from __future__ import annotations

import pytest

from softnic.link.reach.relay_table import BOUND_S, RelayTable
from softnic.link.reach.token import Grant

A, B, C = (bytes([number]) * 32 for number in range(1, 4))
AT_A, AT_B, AT_C = (("192.0.2.1", 1), ("192.0.2.2", 2), ("192.0.2.3", 3))
JOB, OTHER_JOB = Grant(b"j" * 16, 3, 0), Grant(b"o" * 16, 3, 0)


class Ports:
    def __init__(self, *taken: int) -> None:
        self.taken = set(taken)
        self.open: set[int] = set()

    def open_port(self, port: int) -> bool:
        if port in self.taken:
            return False
        self.open.add(port)
        return True


@pytest.fixture
def ports() -> Ports:
    return Ports()


@pytest.fixture
def table(ports: Ports) -> RelayTable:
    return RelayTable(range(100, 104), 8e6, ports.open_port, ports.open.remove)


def port_of(table: RelayTable, key: bytes, grant: Grant = JOB) -> int:
    port = table.allocate(grant, key)
    assert port is not None
    return port


def test_what_a_sends_to_bs_port_leaves_from_as_port(table: RelayTable) -> None:
    at, bt = port_of(table, A), port_of(table, B)
    assert table.bind(bt, JOB, A, AT_A, 1, 0.0)
    assert table.route(bt, AT_A, 0.0) is None  # B has bound no address
    assert table.bind(at, JOB, B, AT_B, 1, 0.0)
    there, back = table.route(bt, AT_A, 0.0), table.route(at, AT_B, 0.0)
    assert there is not None
    assert back is not None
    assert (there[0].port, there[1]) == (at, AT_B)
    assert (back[0].port, back[1]) == (bt, AT_A)


def test_nothing_else_is_forwarded(table: RelayTable) -> None:
    at, bt = port_of(table, A), port_of(table, B)
    assert table.bind(bt, JOB, A, AT_A, 1, 0.0)
    assert table.bind(at, JOB, B, AT_B, 1, 0.0)
    assert table.route(bt, AT_C, 0.0) is None
    assert table.route(bt, AT_B, 0.0) is None
    assert table.route(at, AT_A, 0.0) is None
    assert table.route(103, AT_A, 0.0) is None


def test_ports_are_bound_by_others_of_the_job(table: RelayTable) -> None:
    bt = port_of(table, B)
    assert table.bind(bt, OTHER_JOB, A, AT_A, 1, 0.0) is None
    assert table.bind(bt, JOB, B, AT_B, 1, 0.0) is None
    assert table.bind(99, JOB, A, AT_A, 1, 0.0) is None


def test_a_replayed_binding_changes_nothing(table: RelayTable) -> None:
    bt = port_of(table, B)
    assert table.bind(bt, JOB, A, AT_A, 5, 0.0)
    assert table.bind(bt, JOB, A, AT_C, 5, 0.0) is False
    assert table.bind(bt, JOB, A, AT_C, 4, 0.0) is False
    port = table.port(bt)
    assert port is not None
    assert list(port.by_address) == [AT_A]
    assert table.bind(bt, JOB, A, AT_C, 6, 0.0)
    assert list(port.by_address) == [AT_C]


def test_a_silent_binding_is_forgotten_and_a_used_one_kept(table: RelayTable) -> None:
    at, bt = port_of(table, A), port_of(table, B)
    table.bind(bt, JOB, A, AT_A, 1, 0.0)
    table.bind(at, JOB, B, AT_B, 1, 0.0)
    assert table.route(bt, AT_A, BOUND_S - 1) is not None
    table.expire(BOUND_S)
    assert table.route(bt, AT_A, BOUND_S) is None  # B's has gone
    port = table.port(bt)
    assert port is not None
    assert list(port.by_address) == [AT_A]


def test_a_job_has_a_port_for_each_of_its_nodes(table: RelayTable, ports: Ports) -> None:
    small = Grant(b"s" * 16, 2, 0)
    first = port_of(table, A, small)
    assert port_of(table, A, small) == first
    port_of(table, B, small)
    assert table.allocate(small, C) is None
    table.release(small, A)
    assert table.allocate(small, C) is not None
    assert len(ports.open) == len(table) == 2


def test_ports_that_another_program_has_are_passed_over() -> None:
    ports = Ports(100, 102)
    table = RelayTable(range(100, 104), 8e6, ports.open_port, ports.open.remove)
    assert [table.allocate(JOB, key) for key in (A, B, C)] == [101, 103, None]
    ports.taken.clear()
    assert table.allocate(JOB, C) in (100, 102)


def test_what_a_node_bound_is_forgotten_with_it(table: RelayTable) -> None:
    bt = port_of(table, B)
    port_of(table, A)
    table.bind(bt, JOB, A, AT_A, 1, 0.0)
    table.release(JOB, A)
    port = table.port(bt)
    assert port is not None
    assert (port.by_key, port.by_address) == ({}, {})
