"""Rate of plain UDP datagrams between two processes: `python -m softnic.bench.udp_baseline read|write`.

One sends datagrams of the size of a full frame in VXLAN, as many per call as GSO takes; the other receives with GRO and
discards them. The sender does not wait for the receiver; the result is the number of bytes received.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import struct
import sys
import time
from multiprocessing.connection import wait

from softnic.measure.child_process import report_json
from softnic.measure.timing import own_cpu_s

DATAGRAM_BYTES = 8 + 14 + 1500
"""VXLAN header, Ethernet header, IPv4."""
CALL_BYTES = 65000
"""Most bytes of datagrams per system call."""
MOST_SEGMENTS = 64
"""Most datagrams per system call."""
SOCKET_BUFFER_BYTES = 16 * 2**20
IDLE_S = 0.5
START_S = 10.0
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


def read(host: str) -> None:
    """Receive until nothing has arrived for IDLE_S."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((host, 0))
        _enlarge(receiver, socket.SO_RCVBUF, _SO_RCVBUFFORCE)
        receiver.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        report_json(port=receiver.getsockname()[1])
        buffer, received = bytearray(1 << 16), 0
        began = ended = 0.0
        cpu = own_cpu_s()
        while wait([receiver], IDLE_S if began else START_S):
            began = began or time.monotonic()
            try:
                while True:
                    received += receiver.recv_into(buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                ended = time.monotonic()
        report_json(received=received, seconds=ended - began, cpu_s=own_cpu_s() - cpu)


def write(to: str, seconds: float, datagram: int, single: bool = False) -> None:
    host, _, port = to.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        _enlarge(sender, socket.SO_SNDBUF, _SO_SNDBUFFORCE)
        sender.connect((host, int(port)))
        payload = [bytes((1 if single else min(MOST_SEGMENTS, CALL_BYTES // datagram)) * datagram)]
        segment = [(_SOL_UDP, _UDP_SEGMENT, struct.pack("H", datagram))]
        cpu, until, sent = own_cpu_s(), time.monotonic() + seconds, 0
        while time.monotonic() < until:
            for _ in range(64):
                with contextlib.suppress(ConnectionRefusedError):  # the receiver is not there yet, or has gone
                    sent += sender.sendmsg(payload, segment)
        report_json(sent=sent, cpu_s=own_cpu_s() - cpu)


def _enlarge(wire: socket.socket, option: int, by_force: int) -> None:
    """Enlarge a buffer as for the NIC's sockets: root without limit, others up to the system's limit."""
    try:
        wire.setsockopt(socket.SOL_SOCKET, by_force, SOCKET_BUFFER_BYTES)
    except PermissionError:
        wire.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="softnic.bench.udp_baseline", description=__doc__)
    parser.add_argument("role", choices=["read", "write"])
    parser.add_argument("--host", default="127.0.0.1", help="to receive at")
    parser.add_argument("--to", default="", metavar="HOST:PORT")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--datagram", type=int, default=DATAGRAM_BYTES, help="bytes of UDP payload")
    parser.add_argument("--single", action="store_true", help="one datagram per system call")
    given = parser.parse_args()
    if given.role == "read":
        read(given.host)
    else:
        write(given.to, given.seconds, given.datagram, given.single)
    return 0


if __name__ == "__main__":
    sys.exit(main())
