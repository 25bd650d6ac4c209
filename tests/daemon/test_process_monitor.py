"""Real programs' ways of using sockets: the standard library's servers and clients, unchanged, over two daemons."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import http.server
import os
import selectors
import socket as plain
import socketserver
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from softnic import socket
from tests.daemon.nics import WAIT_S, Nic, pair, paused, read_all, until

LIMIT = 20 << 20
"""More than all buffers between two programs hold."""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """http.server on a NIC: only where the socket comes from differs."""

    def __init__(self, nic: Nic, handler: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__((nic.ip, 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = nic.server()
        self.server_address = self.socket.getsockname()


def test_http_server_serves_http_client(nics: list[Nic], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "weights.bin").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with Server(nics[1], QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            host, port = server.socket.getsockname()
            client = http.client.HTTPConnection(host, port)
            client.sock = nics[0].connect((host, port))
            for _ in range(3):  # one connection, kept alive
                client.request("GET", "/weights.bin")
                answer = client.getresponse()
                assert answer.status == 200
                assert answer.read() == content
            client.request("GET", "/none")
            missing = client.getresponse()
            assert missing.status == 404
            missing.read()
            client.close()
        finally:
            server.shutdown()
            thread.join()


async def test_asyncio_streams(nics: list[Nic]) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    loop = asyncio.get_running_loop()
    listening = nics[1].server()
    listening.setblocking(False)
    address = listening.getsockname()
    server = await asyncio.start_server(shout, sock=listening)
    async with server:

        async def talk(number: int) -> None:
            s = socket.socket(nic=nics[0].path)
            s.setblocking(False)
            await loop.sock_connect(s, address)
            reader, writer = await asyncio.open_connection(sock=s)
            assert writer.get_extra_info("peername") == address
            for line in range(20):
                writer.write(f"line {line} of {number}\n".encode())
                assert await reader.readline() == f"LINE {line} OF {number}\n".encode()
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

        async with asyncio.timeout(3 * WAIT_S):
            await asyncio.gather(*(talk(number) for number in range(20)))
    closed = socket.socket(nic=nics[0].path)
    closed.setblocking(False)
    with closed, pytest.raises(ConnectionRefusedError):
        await loop.sock_connect(closed, address)


def echo(listening: socket.socket, done: threading.Event) -> None:
    """Echoes the data of each connection without blocking."""
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        waiting: dict[socket.socket, bytearray] = {}
        while not done.is_set():
            for key, _ in selector.select(0.05):
                if key.fileobj is listening:
                    accepted, _ = listening.accept()
                    accepted.setblocking(False)
                    waiting[accepted] = bytearray()
                    selector.register(accepted, selectors.EVENT_READ)
                    continue
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                echo_step(selector, connection, waiting)


def echo_step(
    selector: selectors.BaseSelector, connection: socket.socket, waiting: dict[socket.socket, bytearray]
) -> None:
    queue = waiting[connection]
    if not queue:
        data = connection.recv(1 << 16)
        if not data:
            selector.unregister(connection)
            del waiting[connection]
            connection.close()
            return
        queue += data
    with contextlib.suppress(BlockingIOError):
        del queue[: connection.send(queue)]
    selector.modify(connection, selectors.EVENT_WRITE if queue else selectors.EVENT_READ)


def exchanged(connections: Sequence[socket.socket], payloads: Sequence[bytes]) -> list[bytes]:
    """Writes a payload to each connection, and returns what came back before its end."""
    got = [bytearray() for _ in payloads]
    with selectors.DefaultSelector() as selector:
        for number, each in enumerate(connections):
            each.setblocking(False)
            selector.register(each, selectors.EVENT_READ | selectors.EVENT_WRITE, [number, 0])
        while selector.get_map():
            ready = selector.select(WAIT_S)
            assert ready, "nothing moves"
            for key, mask in ready:
                connection, (number, offset) = key.fileobj, key.data
                assert isinstance(connection, socket.socket)
                if mask & selectors.EVENT_WRITE:
                    key.data[1] += connection.send(payloads[number][offset : offset + 50_000])
                    if key.data[1] == len(payloads[number]):
                        connection.shutdown(socket.SHUT_WR)
                        selector.modify(connection, selectors.EVENT_READ, key.data)
                if mask & selectors.EVENT_READ:
                    data = connection.recv(1 << 16)
                    got[number] += data
                    if not data:
                        selector.unregister(connection)
                        connection.close()
    return [bytes(part) for part in got]


def test_64_connections_at_once_with_a_selector(nics: list[Nic]) -> None:
    """One thread echoes, one writes and reads 64 connections; both block nowhere, and the pipes between fill up."""
    payloads = [os.urandom(300_000) for _ in range(64)]
    listening = nics[1].server()
    listening.setblocking(False)
    done = threading.Event()
    server = threading.Thread(target=echo, args=(listening, done))
    server.start()
    try:
        connections = [nics[0].connect(listening.getsockname()) for _ in payloads]
        assert exchanged(connections, payloads) == payloads
    finally:
        done.set()
        server.join()
        listening.close()


def test_100_mb_each_way_at_once_arrive_whole(nics: list[Nic]) -> None:
    size = 100_000_000
    block = os.urandom(1 << 20)
    sums: dict[str, bytes] = {}
    a, b = pair(nics)

    def write(connection: socket.socket, name: str) -> None:
        written = hashlib.blake2b()
        for offset in range(0, size, len(block)):
            part = memoryview(block)[: size - offset]
            written.update(part)
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        sums[f"sent by {name}"] = written.digest()

    def read(connection: socket.socket, name: str) -> None:
        got, buffer = hashlib.blake2b(), memoryview(bytearray(1 << 18))
        while count := connection.recv_into(buffer):
            got.update(buffer[:count])
        sums[f"read by {name}"] = got.digest()

    with a, b:
        threads = [threading.Thread(target=do, args=(s, n)) for do in (write, read) for s, n in ((a, "a"), (b, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sums["read by b"] == sums["sent by a"]
    assert sums["read by a"] == sums["sent by b"]


def test_a_reader_that_sleeps_holds_the_writer_back_and_loses_nothing(nics: list[Nic]) -> None:
    """What may be on the way is bounded, on every one of several connections, while another one goes on."""
    stalled = [pair(nics) for _ in range(4)]
    block = bytes(1 << 16)
    written = []
    for a, _ in stalled:
        a.settimeout(0.3)
        count = 0
        with contextlib.suppress(TimeoutError):
            while count < LIMIT:
                count += a.send(block)
        written.append(count)
    assert max(written) < LIMIT
    a, b = pair(nics)
    with a, b:
        a.sendall(b"goes on")
        assert read_all(b, 7) == b"goes on"
    for (a, b), count in zip(stalled, written, strict=True):
        with a, b:
            a.shutdown(socket.SHUT_WR)
            assert len(read_all(b)) == count


def test_makefile_dup_and_fromfd_are_the_same_connection(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with b:
        with a, a.dup() as second, socket.fromfd(a.fileno(), a.family, a.type) as third:
            assert second.getpeername() == third.getpeername() == a.getpeername()
            assert socket.info(third).stream == socket.info(a).stream
            a.sendall(b"one\n")
            second.sendall(b"two\n")
            third.sendall(b"three\n")
        with b.makefile("rb") as file:
            assert file.readlines() == [b"one\n", b"two\n", b"three\n"]
    left, right = plain.socketpair()
    with left, right, pytest.raises(OSError, match="is not a NIC's stream"):
        socket.fromfd(left.fileno(), socket.AF_INET, socket.SOCK_STREAM)


def test_info_and_tcp_info_tell_what_happened(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        a.sendall(bytes(100_000))
        read_all(b, 100_000)
        b.sendall(b"seen")
        read_all(a, 4)
        info = socket.info(a)
        assert info.state == "ESTABLISHED"
        assert (info.local, info.peer) == (a.getsockname(), a.getpeername())
        assert (info.bytes_sent, info.bytes_received) == (100_000, 4)
        assert info.wire_bytes_sent > 100_000
        assert info.ratio == 1
        assert 0 < info.srtt < 1
        raw = a.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
        assert raw[0] == 1
        assert int.from_bytes(raw[120:128], "little") == 100_000
        assert int.from_bytes(raw[128:136], "little") == 4
        info = socket.info(a)
        assert int.from_bytes(raw[68:72], "little") == round(info.srtt * 1e6)
        with paused(nics[1]):  # so nothing is acknowledged
            a.sendall(b"x")
            until(lambda: socket.info(a).send_queue == 1)
            words = struct.unpack_from("=24I", a.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136), 8)
        named = {
            0: round(info.rto * 1e6),
            1: 0,
            2: info.mss,
            3: info.mss,
            4: 1,
            18: info.cwnd // info.mss,
            19: info.mss,
        }
        assert {place: words[place] for place in named} == named
    with pytest.raises(OSError, match="is not a NIC's stream"):
        socket.info(a)
