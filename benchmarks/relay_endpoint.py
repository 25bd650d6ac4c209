"""One end of a stream of benchmarks.relay: meets the other one, and then sends or counts, as it is asked on stdin."""

from __future__ import annotations

import os
import select
import socket
import sys
import time

import numpy as np

from softnic import underlay
from softnic._native import ffi, lib
from softnic.link.endpoint import packed
from softnic.link.reach.client import MeetingClient
from softnic.link.reach.token import Token
from softnic.link.sockets import open_socket

_BATCH = 40
"""Datagrams a call: a batch that one segmented datagram carries."""
_BUFFER_BYTES = 1 << 16


def meet(wire: socket.socket) -> tuple[str, str]:
    """Return where the other node is reached directly, and by the relay."""
    token = Token.parse(os.environ["SOFTNIC_TOKEN"])
    client = MeetingClient(token, os.urandom(32), [wire.getsockname()], os.urandom)
    since = None
    while since is None or time.monotonic() < since + 0.5:  # the other one needs an answer, too
        for to, data in client.poll(time.monotonic()):
            wire.sendto(data, to)
        select.select([wire], [], [], 0.01)
        try:
            while True:
                data, source = wire.recvfrom(_BUFFER_BYTES)
                client.on_datagram(underlay.of_socket(source), data, time.monotonic())
        except BlockingIOError:
            pass
        if since is None and any(client.is_relay_bound(key) for key in client.nodes):
            since = time.monotonic()
    [node] = client.nodes.values()
    direct = next(each.address for each in node.candidates if not each.relayed)
    relayed = next(each.address for each in node.candidates if each.relayed)
    return underlay.text(direct), underlay.text(relayed)


def send(wire: socket.socket, to: underlay.Address, rate_bps: float, size: int, seconds: float) -> tuple[int, float]:
    """Send datagrams at a constant rate. Returns their bytes, and the seconds that it took."""
    frames = np.tile(np.frombuffer(b"\x11" + os.urandom(size - 1), np.uint8), _BATCH)
    lengths = np.full(_BATCH, size, np.uint32)
    offsets = np.arange(_BATCH, dtype=np.uint32) * np.uint32(size)
    arrays = (
        ffi.from_buffer("uint8_t[]", frames),
        ffi.from_buffer("uint32_t[]", offsets),
        ffi.from_buffer("uint32_t[]", lengths),
    )
    endpoint = ffi.new("sn_endpoint *")
    ffi.memmove(endpoint, packed(to, wire.family), ffi.sizeof("sn_endpoint"))
    began = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - began) < seconds:
        if sent * 8 > passed * rate_bps:
            time.sleep(0.0005)
            continue
        accepted = lib.sn_udp_send(wire.fileno(), endpoint, *arrays, _BATCH, True)
        if accepted < 0:
            select.select([], [wire], [], 0.01)
        else:
            sent += accepted * size
    return sent, time.monotonic() - began


def receive(wire: socket.socket) -> int:
    """Count bytes until a line comes on stdin."""
    lib.sn_enable_gro(wire.fileno())
    buffer = bytearray(_BUFFER_BYTES)
    print("ready", flush=True)
    total = 0
    while True:
        readable, _, _ = select.select([wire, sys.stdin], [], [])
        if wire in readable:
            try:
                for _ in range(256):
                    size = wire.recv_into(buffer)
                    total += size if buffer[0] == 0x11 else 0
            except BlockingIOError:
                pass
        elif readable:
            return total


def main() -> int:
    """Run the end whose address is the argument. Returns the exit code."""
    wire = open_socket((sys.argv[1], 0))
    print(*meet(wire), flush=True)
    asked = sys.stdin.readline().split()
    if asked[:1] == ["send"]:
        to, rate, size, seconds = asked[1:]
        print(*send(wire, underlay.parse(to), float(rate), int(size), float(seconds)), flush=True)
    elif asked == ["receive"]:
        print(receive(wire), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
