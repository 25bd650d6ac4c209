"""Sums over connections, computed in C, compared with the same from each connection's own state."""

from __future__ import annotations

import pytest

from softnic.tcp.connection import Connection
from softnic.tcp.state import State
from softnic.tcp.totals import MAX_PEERS, totals_of
from tests.tcp.lab import Lab, Wire


def test_sums_are_those_of_the_connections() -> None:
    lab = Lab(Wire(loss=0.05, delay_s=0.01), seed=4, nodes=3)
    for node in (lab.nodes[1], lab.nodes[2]):
        node.host.listen(0, 5000, 8, lab.now)
    to_b = [lab.a.host.connect(lab.b.ip, 5000, lab.now) for _ in range(3)]
    to_c = [lab.a.host.connect(lab.nodes[2].ip, 5000, lab.now) for _ in range(2)]
    assert lab.run(lambda: all(each.state is State.ESTABLISHED for each in to_b + to_c))
    assert totals_of(to_b).unacknowledged == 0
    for index, connection in enumerate(to_b + to_c[:1]):
        connection.send(bytes(20_000 * (index + 1)))
    lab.run(lambda: sum(each.retransmits for each in to_b + to_c) > 2)
    totals = totals_of(to_b + to_c)
    infos = {peer: [each.info(lab.now) for each in side] for peer, side in ((lab.b.ip, to_b), (lab.nodes[2].ip, to_c))}
    assert [each.peer for each in totals.peers] == list(infos)
    assert totals.unacknowledged == sum(info.send_queue > 0 for side in infos.values() for info in side) > 0
    for entry, side in zip(totals.peers, infos.values(), strict=True):
        assert entry.flows == len(side)
        assert entry.send_queue == sum(info.send_queue for info in side)
        assert entry.retransmits == sum(info.retransmits for info in side)
        assert entry.srtt == pytest.approx(sum(info.srtt for info in side) / len(side))
        assert entry.srtt_max == max(info.srtt for info in side)
    assert sum(entry.retransmits for entry in totals.peers) > 2


def test_unread_bytes_are_summed() -> None:
    lab = Lab()
    client, server = lab.pair()
    client.send(bytes(5000))
    lab.run(lambda: server.info(lab.now).receive_queue == 5000)
    assert [entry.receive_queue for entry in totals_of([server]).peers] == [5000]


def test_a_connection_that_has_measured_nothing_has_no_round_trip() -> None:
    lab = Lab()
    connection = lab.a.host.connect(lab.b.ip, 5000, lab.now)
    [entry] = totals_of([connection]).peers
    assert (entry.flows, entry.srtt, entry.srtt_max) == (1, 0.0, 0.0)


def test_peers_beyond_the_limit_share_an_entry() -> None:
    lab = Lab()
    connections: list[Connection] = [
        lab.a.host.connect(lab.b.ip + number, 5000, lab.now) for number in (*range(MAX_PEERS + 3), 0, MAX_PEERS + 1)
    ]
    totals = totals_of(connections)
    assert [entry.peer for entry in totals.peers] == [*(lab.b.ip + number for number in range(MAX_PEERS)), None]
    assert [entry.flows for entry in totals.peers] == [2, *[1] * (MAX_PEERS - 1), 4]


def test_no_connections() -> None:
    assert totals_of([]).peers == []
