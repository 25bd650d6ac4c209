"""A relay at a peer's address answers for itself: its datagrams are passed on, and are neither frames nor strangers."""

from __future__ import annotations

import socket
import time

from softnic import underlay
from softnic.link.reach.candidates import Candidate
from softnic.link.secure.channel import EncryptionSettings
from softnic.link.udp import VxlanLink

KEY = bytes(range(32))
OWN, PEER = b"\x02\x00\x0a\x4d\x00\x01", b"\x02\x00\x0a\x4d\x00\x02"
WAIT_S = 20.0


def test_datagrams_of_servers_pass_on_from_strangers_and_from_the_addresses_of_peers() -> None:
    link = VxlanLink(("127.0.0.1", 0), encryption=EncryptionSettings(KEY, OWN))
    got: list[tuple[tuple[str, int], bytes]] = []
    link.deliver_datagrams(lambda address, data, _now: got.append((address, data)))
    relay, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    try:
        for each in (relay, other):
            each.bind(("127.0.0.1", 0))
        at_relay, at_other = (underlay.of_socket(each.getsockname()) for each in (relay, other))
        link.offer(PEER, [Candidate(at_relay, 1, relayed=True)])
        assert [(way.address, way.relayed) for way in link.reached.values()] == [(at_relay, True)]
        relay.sendto(b"\x13 of the relay", link.address)
        other.sendto(b"\x13 of a server", link.address)
        end = time.monotonic() + WAIT_S
        while len(got) < 2 and time.monotonic() < end:
            assert link.receive(time.monotonic()) is None
        assert sorted(got) == sorted([(at_relay, b"\x13 of the relay"), (at_other, b"\x13 of a server")])
        counters = link.counters()
        assert counters["link_dropped_malformed"] == counters["link_dropped_unknown_source"] == 0
        other.sendto(b"\x11 of nobody", link.address)
        while not link.counters()["link_dropped_unknown_source"] and time.monotonic() < end:
            assert link.receive(time.monotonic()) is None
        assert link.counters()["link_dropped_unknown_source"] == 1
    finally:
        link.close()
        relay.close()
        other.close()
