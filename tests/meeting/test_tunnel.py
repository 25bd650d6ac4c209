"""Tunnels through TCP: nodes without UDP meet and are reached, strangers are closed, and full queues drop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket

import pytest

from softnic.link.reach import tunnel as node_tunnel
from softnic.link.reach.tunnel import HEADER, QUEUE_BYTES, Tunnel
from softnic.meeting import tunnels
from softnic.underlay import Address
from tests.meeting.wires import Wire, bound, relayed, serving, token_for, until

SEALED = b"\x11" + bytes(100)
NOBODY: list[list[Address]] = [[("127.0.0.1", 9)]]
"""In the place of servers whose UDP does not arrive."""


async def test_a_node_without_udp_is_reached_through_a_tunnel() -> None:
    async with serving() as (service, _):
        token = token_for(service.port, 2)
        to: Address = ("127.0.0.1", service.tcp_ports[0])
        plain, hidden = Wire(token), Wire(token, servers=NOBODY)
        tunnel = await Tunnel.open(token, hidden.key, to, hidden.address, service.port)
        hidden.client.add_tunnel(0, tunnel.local(service.port), tunnel.local)
        hidden.poll()
        try:
            to_hidden, to_plain = await bound(plain, hidden)
            assert to_plain[0] == "127.0.0.1"
            plain.socket.sendto(SEALED, to_hidden)
            await until(lambda: hidden.frames == [(to_plain, SEALED)])
            hidden.socket.sendto(SEALED, to_plain)
            await until(lambda: plain.frames == [(to_hidden, SEALED)])
            assert len(service.tunnels) == 1
            assert tunnel.counted.dropped_full == 0
        finally:
            tunnel.close()
            plain.close()
            hidden.close()
        await until(lambda: len(service.tunnels) == 0)


async def test_a_tunnel_that_was_lost_is_replaced() -> None:
    async with serving() as (service, _):
        token = token_for(service.port, 2)
        to: Address = ("127.0.0.1", service.tcp_ports[0])
        plain, hidden = Wire(token), Wire(token, servers=NOBODY)
        try:
            for round_number in range(2):
                tunnel = await Tunnel.open(token, hidden.key, to, hidden.address, service.port)
                hidden.client.add_tunnel(0, tunnel.local(service.port), tunnel.local)
                hidden.poll()
                to_hidden, to_plain = await bound(plain, hidden)
                assert to_plain[1] in [address[1] for address in relayed(hidden, plain)]
                plain.frames.clear()
                hidden.socket.sendto(SEALED, to_plain)
                await until(lambda: len(plain.frames) == 1)
                assert plain.frames == [(to_hidden, SEALED)]
                plain.socket.sendto(SEALED, to_hidden)
                await until(lambda number=round_number: len(hidden.frames) == 1 + number)  # type: ignore[misc]
                service.tunnels.close_all()
                await asyncio.wait_for(tunnel.lost.wait(), 10)
        finally:
            plain.close()
            hidden.close()


async def test_two_nodes_without_udp_reach_each_other() -> None:
    async with serving() as (service, _):
        token = token_for(service.port, 2)
        to: Address = ("127.0.0.1", service.tcp_ports[0])
        nodes = [Wire(token, servers=NOBODY) for _ in range(2)]
        opened = [await Tunnel.open(token, node.key, to, node.address, service.port) for node in nodes]
        for node, tunnel in zip(nodes, opened, strict=True):
            node.client.add_tunnel(0, tunnel.local(service.port), tunnel.local)
            node.poll()
        a, b = nodes
        try:
            to_b, to_a = await bound(a, b)
            sent = [bytes([0x11]) + number.to_bytes(4, "big") * 300 for number in range(100)]
            for data in sent:
                a.socket.sendto(data, to_b)
                await asyncio.sleep(0)
            await until(lambda: len(b.frames) == 100)
            assert b.frames == [(to_a, data) for data in sent]
            assert relayed(a, b) == [to_b]
        finally:
            for node, tunnel in zip(nodes, opened, strict=True):
                tunnel.close()
                node.close()


async def test_the_first_server_that_answers_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tunnel, "TCP_PORT", 9)
    async with serving() as (service, _):
        token = token_for(service.port, 2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            servers: list[list[Address]] = [[silent.getsockname()], [("127.0.0.1", service.tcp_ports[0])]]
            index, tunnel = await Tunnel.open_any(token, os.urandom(32), servers, ("127.0.0.1", 1))
        assert index == 1
        assert not tunnel.lost.is_set()
        tunnel.close()
        await until(tunnel.lost.is_set)


async def test_no_server_by_tcp_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tunnel, "CONNECT_S", 0.2)
    monkeypatch.setattr(node_tunnel, "TCP_PORT", 9)
    async with serving() as (service, _):
        other = token_for(service.port, 2, secret=bytes(32))
        with pytest.raises(OSError, match="no meeting server answers by TCP at port 9 or that of UDP"):
            await Tunnel.open_any(other, bytes(32), [[("127.0.0.1", service.port)]], ("127.0.0.1", 1))
        with (
            socket.create_server(("127.0.0.1", 0)) as silent,
            pytest.raises(OSError, match="no meeting server answers at"),
        ):
            await Tunnel.open(other, bytes(32), silent.getsockname(), ("127.0.0.1", 1), service.port)
        with pytest.raises(OSError, match="no meeting server answers at"):
            await Tunnel.open(other, bytes(32), ("127.0.0.1", service.tcp_ports[0]), ("127.0.0.1", 1), service.port)
        assert (len(service.tunnels), service.tunnels.counted.tunnels_opened) == (0, 0)


async def test_a_tunnel_that_proves_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels, "FIRST_S", 0.2)
    chance = random.Random(1)
    async with serving() as (service, _):
        firsts = [b"", b"GET / HTTP/1.1\r\n\r\n" + bytes(20_000), HEADER.pack(200, service.port) + bytes(200)]
        firsts += [chance.randbytes(chance.randrange(100)) for _ in range(20)]
        for first in firsts:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.tcp_ports[0])
            writer.write(first)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 10)
            writer.close()
        await until(lambda: service.tunnels.counted.tunnels_refused == len(firsts))
        assert len(service.tunnels) == 0


async def test_many_connections_that_prove_nothing_make_room_for_each_other() -> None:
    async with serving() as (service, _):
        opened = []
        try:
            for _ in range(tunnels.MOST_UNPROVEN + 20):
                opened.append(await asyncio.open_connection("127.0.0.1", service.tcp_ports[0]))
            await until(lambda: service.tunnels.counted.tunnels_refused >= 20)
            token = token_for(service.port, 2)
            to: Address = ("127.0.0.1", service.tcp_ports[0])
            tunnel = await Tunnel.open(token, os.urandom(32), to, ("127.0.0.1", 1), service.port)
            tunnel.close()
        finally:
            for _, writer in opened:
                writer.close()


async def test_a_tunnel_that_is_not_read_drops_instead_of_growing() -> None:
    async with serving() as (service, _):
        token = token_for(service.port, 2)
        plain, hidden = Wire(token), Wire(token, servers=NOBODY)
        to: Address = ("127.0.0.1", service.tcp_ports[0])
        tunnel = await Tunnel.open(token, hidden.key, to, hidden.address, service.port)
        hidden.client.add_tunnel(0, tunnel.local(service.port), tunnel.local)
        hidden.poll()
        try:
            to_hidden, _ = await bound(plain, hidden)
            assert tunnel._transport is not None
            tunnel._transport.pause_reading()
            for _ in range(400):
                for _ in range(25):
                    with contextlib.suppress(BlockingIOError):
                        plain.socket.sendto(b"\x11" + bytes(1400), to_hidden)
                await asyncio.sleep(0)
                if service.relay.counted.relay_dropped_full:
                    break
            await until(lambda: service.relay.counted.relay_dropped_full > 0)
            [server_side] = service.tunnels._open.values()
            assert server_side._transport is not None
            assert server_side._transport.get_write_buffer_size() <= QUEUE_BYTES + 2048
        finally:
            tunnel.close()
            plain.close()
            hidden.close()


async def test_only_the_nic_may_send_through_its_tunnel() -> None:
    async with serving() as (service, _):
        token = token_for(service.port, 2)
        to: Address = ("127.0.0.1", service.tcp_ports[0])
        wire = Wire(token, servers=NOBODY)
        tunnel = await Tunnel.open(token, wire.key, to, wire.address, service.port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(SEALED, tunnel.local(service.port))
            await until(lambda: tunnel.counted.dropped_unknown == 1)
        assert tunnel.counted.sent == 1  # the proof
        tunnel.close()
        wire.close()
