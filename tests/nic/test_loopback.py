"""Connections of a node to itself, as between ranks on one NIC: coded as on a wire, but never sent on one."""

from __future__ import annotations

import itertools
import random

import pytest

from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.packet.segment import PLAIN, Segment, Tag
from softnic.sim.clock import VirtualClock
from softnic.tcp.config import TcpConfig

from .harness import IP_A, IP_B, TOS, floats
from .nodes import Transfer, TxPart, expected, transfer, two_nodes

CODECS = ["bounded:10", "inceptionn:10", "bfp:7", "truncate:16", "rht:4", "exact:32", "mx:e4m3", "raw"]


def mixed(codec: str | None) -> list[TxPart]:
    tag = Tag(TOS, codec)
    return [(PLAIN, b"before" * 999), (tag, floats(30_001, seed=3).tobytes() + b"t"), (PLAIN, b"after" * 777)]


@pytest.mark.parametrize("mode", ["fill", "packet"])
@pytest.mark.parametrize("codec", [*CODECS, None])
def test_a_tagged_float_arrives_as_decode_of_encode(codec: str | None, mode: str) -> None:
    node, other = two_nodes(1, mode=mode)
    parts = mixed(codec)
    program, clock = transfer(node, node, parts)
    assert bytes(program.got) == expected(parts)
    clock.run_for([node, other], 1.0)
    counters = node.counters()
    assert counters["loopback_frames"] == counters["tx_frames"] == counters["rx_frames"]
    assert counters["loopback_wire_bytes"] == counters["tx_wire_bytes"]
    assert counters["tx_offload_original_bytes"] == 4 * 30_001 + 1
    assert other.counters()["rx_frames"] == 0
    assert node.nic.counters.rx_dropped == 0


def test_an_emulated_link_delays_only_what_leaves() -> None:
    """Frames queued for the link do not delay local frames."""
    slow, other = two_nodes(2, link={"rate_bps": 1e6, "delay_s": 0.1, "loss": 0.05})
    clock = VirtualClock()
    away = Transfer(slow, other, [(PLAIN, bytes(1 << 20))], port=81)
    here = Transfer(slow, slow, mixed(None), port=80)
    clock.run([away, here, slow, other], lambda: here.done, 1e-3)
    assert bytes(here.got) == expected(mixed(None))
    assert not away.done


def test_nobody_else_may_say_that_it_is_this_node() -> None:
    network = MemoryNetwork()
    node = Node(IP_A, network.port(), rng=random.Random(1), offloads={TOS: "bounded:10"})
    twin = Node(IP_B, network.port(), rng=random.Random(2), offloads={TOS: "bounded:10"})
    twin.nic.transmit(Segment(IP_A, IP_A, 7, 80, 1), node.nic.mac, 1, 0.0)
    node.advance(0.0)
    assert node.nic.counters.rx_drop_ip_address == 1
    assert node.nic.counters.rx_segments == 0


def test_a_turn_ends_while_there_is_more_for_this_node() -> None:
    """Else the wire would wait for as long as readers and writers of one host have something to say."""
    config = TcpConfig(send_buffer=16 << 20, receive_buffer=16 << 20)
    node, _ = two_nodes(3, config=config)
    programs = [Transfer(node, node, [(PLAIN, bytes(16 << 20))], port=port) for port in (80, 81)]
    looped, now = [0], 0.0
    while not all(program.done for program in programs):
        for program in programs:
            program.advance(now)
        node.advance(now)
        looped.append(node.counters()["loopback_wire_bytes"])
        now += 1e-3
    most = max(after - before for before, after in itertools.pairwise(looped))
    assert 8 << 20 < most < 10 << 20
