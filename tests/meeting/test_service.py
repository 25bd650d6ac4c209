"""A server with its sockets: nodes on loopback meet, and send through its relay and its tunnels."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time

import pytest

from softnic.link.reach.token import admits_all
from softnic.meeting.service import MeetingSettings
from tests import needs
from tests.meeting.wires import SECRET, Wire, bound, relayed, serving, settings_for, token_for, until

SEALED = b"\x11" + bytes(100)


async def test_nodes_meet() -> None:
    async with serving() as (service, lines):
        token = token_for(service.port, 3)
        wires = [Wire(token) for _ in range(3)]
        try:
            await until(lambda: all(wire.client.complete for wire in wires))
            assert {wire.client.number for wire in wires} == {0, 1, 2}
            assert all(wire.client.seen == (wire.address,) for wire in wires)
            await until(lambda: all(wire.client.nat == "open" for wire in wires), lambda: wires[0].client.nat)
            signal.raise_signal(signal.SIGUSR1)
            await until(lambda: len(lines) == 3)
        finally:
            for wire in wires:
                wire.close()
    assert lines[0] == f"listens on UDP ports {service.port} to {service.port + 2}, TCP port {lines[0].split()[-1]}"
    assert lines[1].endswith("begins: 3 nodes")
    assert "nodes=3" in lines[2].split()
    assert "dropped" not in lines[2]


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::", marks=needs.ipv6)])
async def test_the_relay_forwards_between_nodes_of_a_job_and_for_nobody_else(host: str) -> None:
    async with serving(settings_for(host)) as (service, _):
        a, b = (Wire(token) for token in [token_for(service.port, 2)] * 2)
        other = Wire(token_for(service.port, 2))
        stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            to_b, to_a = await bound(a, b)
            a.socket.sendto(SEALED, to_b)
            await until(lambda: b.frames == [(to_a, SEALED)])
            b.socket.sendto(SEALED, to_a)
            await until(lambda: a.frames == [(to_b, SEALED)])
            stranger.sendto(SEALED, to_b)
            other.socket.sendto(SEALED, to_b)
            a.socket.sendto(b"\x20 not sealed", to_b)
            a.socket.sendto(SEALED, to_b)
            counted = service.relay.counted
            await until(lambda: len(b.frames) == 2 and counted.relay_dropped_unknown == 2)
            assert counted.relay_dropped_not_sealed == 1
            assert b.frames[1] == (to_a, SEALED)
        finally:
            stranger.close()
            for wire in (a, b, other):
                wire.close()


@needs.ipv6
async def test_the_relay_connects_ipv6_with_ipv4() -> None:
    async with serving(settings_for("::")) as (service, _):
        token = token_for(service.port, 2)
        a, b = Wire(token), Wire(token, "::1", [[("::1", service.port)]])
        try:
            to_b, to_a = await bound(a, b)
            assert (to_b[0], to_a[0]) == ("127.0.0.1", "::1")
            a.socket.sendto(SEALED, to_b)
            b.socket.sendto(SEALED, to_a)
            await until(lambda: bool(a.frames and b.frames))
            assert (a.frames, b.frames) == ([(to_b, SEALED)], [(to_a, SEALED)])
            assert a.client.nodes[b.key].seen == (b.address,)
            assert b.client.nodes[a.key].seen == (a.address,)
        finally:
            a.close()
            b.close()


@needs.ipv6
async def test_a_node_that_registers_by_both_families_is_one_node_with_two_addresses() -> None:
    async with serving(settings_for("::")) as (service, _):
        token = token_for(service.port, 2)
        plain = Wire(token)
        both = Wire(token, "::", [[("::1", service.port), ("::ffff:127.0.0.1", service.port)]])
        try:
            await until(lambda: plain.client.complete and both.client.complete)
            await until(lambda: len(plain.client.nodes[both.key].seen) == 2)
            assert {each[0] for each in plain.client.nodes[both.key].seen} == {"127.0.0.1", "::1"}
            assert set(both.client.seen) == set(plain.client.nodes[both.key].seen)
            assert service.server.nodes == 2
        finally:
            plain.close()
            both.close()


async def test_many_datagrams_arrive_whole_and_in_order() -> None:
    async with serving() as (service, _):
        a, b = (Wire(token) for token in [token_for(service.port, 2)] * 2)
        try:
            to_b, to_a = await bound(a, b)
            sent = [
                bytes([0x10 + number % 3]) + number.to_bytes(4, "big") * (1 + number % 300) for number in range(500)
            ]
            for first in range(0, len(sent), 25):
                for data in sent[first : first + 25]:
                    a.socket.sendto(data, to_b)
                await until(lambda first=first: len(b.frames) == first + 25)  # type: ignore[misc]
            assert b.frames == [(to_a, data) for data in sent]
        finally:
            a.close()
            b.close()


async def test_a_request_that_the_kernel_joins_to_frames_is_answered_and_not_forwarded() -> None:
    """GRO of a real path does so; here the sender asks for it."""
    async with serving() as (service, _):
        a, b = (Wire(token) for token in [token_for(service.port, 2)] * 2)
        try:
            to_b, to_a = await bound(a, b)
            forged = service.server.counted.dropped_malformed
            joined = SEALED + SEALED + b"\x13 no message"
            segment = (socket.SOL_UDP, 103, len(SEALED).to_bytes(2, sys.byteorder))  # UDP_SEGMENT
            try:
                a.socket.sendmsg([joined], [segment], 0, to_b)
            except OSError as error:
                pytest.skip(f"this kernel has no UDP GSO: {error}")
            await until(lambda: len(b.frames) == 2)
            await until(lambda: service.server.counted.dropped_malformed == forged + 1)
            assert b.frames == [(to_a, SEALED)] * 2
        finally:
            a.close()
            b.close()


async def test_a_job_is_limited_to_its_rate() -> None:
    async with serving() as (service, _):
        a, b = (Wire(token) for token in [token_for(service.port, 2, relay_kbps=1)] * 2)
        try:
            to_b, _to_a = await bound(a, b)
            for _ in range(50):
                for _ in range(10):
                    a.socket.sendto(b"\x11" + bytes(1400), to_b)
                await asyncio.sleep(0)
            counted = service.relay.counted
            await until(lambda: counted.relay_forwarded + counted.relay_dropped_rate == 500)
            assert counted.relay_forwarded_bytes == pytest.approx(256e3, rel=0.05)
        finally:
            a.close()
            b.close()


async def test_a_port_in_use_is_one_clear_error() -> None:
    async with serving() as (service, _):
        with pytest.raises(OSError, match="another process uses this port"):
            async with serving(MeetingSettings(("127.0.0.1", service.port), admits_all(SECRET))):
                pass


async def test_without_relay_ports_nodes_meet_all_the_same() -> None:
    async with serving(MeetingSettings(("127.0.0.1", 0), admits_all(SECRET))) as (service, _):
        a, b = (Wire(token) for token in [token_for(service.port, 2)] * 2)
        try:
            await until(lambda: a.client.complete and b.client.complete)
            await until(lambda: a.client.nat == b.client.nat == "open")
            assert service.server.counted.refused == 4  # for each a port of the relay, and an answer from elsewhere
            assert relayed(a, b) == []
        finally:
            a.close()
            b.close()


async def test_the_flood_of_a_stranger_leaves_the_server_answering() -> None:
    async with serving() as (service, _):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setblocking(False)
            for _ in range(20):
                for _ in range(500):
                    stranger.sendto(b"\x13\x01\x01\x00" + bytes(300), ("127.0.0.1", service.port))
                await asyncio.sleep(0)
            began = time.monotonic()
            a, b = (Wire(token) for token in [token_for(service.port, 2)] * 2)
            try:
                await until(lambda: a.client.complete and b.client.complete)
            finally:
                a.close()
                b.close()
            assert time.monotonic() - began < 10
            assert service.server.nodes == 2
            assert service.server.counted.dropped_forged > 1000
            with pytest.raises(BlockingIOError):
                stranger.recv(2000)
