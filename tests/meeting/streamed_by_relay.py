"""One of two programs under `softnic join` that send each other blocks through whatever relay there is.

python -m tests.meeting.streamed_by_relay SECONDS OWN OTHER

Node OWN listens if its number is the higher one. The last line has the longest time without data, in seconds, and the
relays that the NIC used: addresses of nodes, or `server`, in order.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from softnic import socket
from softnic.cluster.nic_process import node_ip, read_stats

PORT = 5000
BLOCK = 1 << 14
PERIOD_S = 0.02
CONNECT_S = 60.0


def main(seconds: float, own: int, other: int) -> None:
    """Send blocks whose numbers the other side checks, and take those of the other side."""
    if own > other:
        with socket.create_server(("", PORT)) as listener:
            listener.settimeout(CONNECT_S)
            stream, _ = listener.accept()
    else:
        stream = _connected(node_ip(other))
    relays: list[str] = []
    silence = 0.0
    stream.settimeout(CONNECT_S)
    with stream, stream.makefile("rb") as reader:
        sending = threading.Thread(target=_send, args=(stream, seconds))
        sending.start()
        print("sending", file=sys.stderr, flush=True)
        count, last = 0, time.monotonic()
        while block := reader.read(BLOCK):
            assert block == (count % 256).to_bytes() * BLOCK
            now = time.monotonic()
            count, silence, last = count + 1, max(silence, now - last), now
            _note(relays, node_ip(other))
        sending.join()
    assert count > seconds / PERIOD_S / 10
    print(f"{silence:.3f}", *relays, flush=True)


def _connected(host: str) -> socket.socket:
    until = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection((host, PORT), timeout=CONNECT_S)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _send(stream: socket.socket, seconds: float) -> None:
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        stream.sendall((number % 256).to_bytes() * BLOCK)
        number += 1
        time.sleep(PERIOD_S)
    stream.shutdown(socket.SHUT_WR)


def _note(relays: list[str], peer: str) -> None:
    ways = [way for way in read_stats(os.environ["SOFTNIC_NIC"]).ways if way.peer == peer]  # type: ignore[arg-type]
    for way in ways:
        name = (way.relay or "server") if way.relayed else "direct"
        if relays[-1:] != [name]:
            relays.append(name)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
