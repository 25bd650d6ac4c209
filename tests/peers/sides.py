"""A connection between the kernel's TCP and softnic's, with both ends in this process."""

from __future__ import annotations

import contextlib
import functools
import random
import socket as plain
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, ParamSpec

from softnic.cluster.netns_lab.cable import Cable, bad_cable
from softnic.cluster.netns_lab.host import NetnsHost, join
from tests.daemon.nics import serving
from tests.hosts import HostedNic

LIMIT_S = 60.0
"""For what a busy machine and a bad cable may take; a hang is cut off here."""
KERNEL, OURS = "10.77.0.1", "10.77.0.2"
Side = Literal["kernel", "ours"]
SIDES: tuple[Side, Side] = ("kernel", "ours")
Socket = plain.socket
Address = tuple[str, int]
P = ParamSpec("P")


@dataclass(frozen=True)
class Sides:
    """A plain host with a VXLAN device, whose address is KERNEL, and one with a NIC, whose address is OURS."""

    plain: NetnsHost
    nic: HostedNic
    cable: Cable | None = None

    def serve(self, side: Side) -> Socket:
        if side == "ours":
            return self.nic.server()
        with self.plain.entered():
            return plain.create_server((KERNEL, 0))

    def kernel_socket(self) -> Socket:
        with self.plain.entered():
            made = plain.socket()
        made.settimeout(LIMIT_S)
        return made

    def connect(self, side: Side, address: Address) -> Socket:
        """Connects from this side."""
        if side == "ours":
            return self.nic.connect(address)
        made = self.kernel_socket()
        try:
            made.connect(address)
        except OSError:
            made.close()
            raise
        return made

    @contextlib.contextmanager
    def connection(self, opener: Side) -> Iterator[tuple[Socket, Socket]]:
        """Yields the kernel's end and softnic's end of a connection opened by `opener`."""
        with self.serve("ours" if opener == "kernel" else "kernel") as server:
            server.settimeout(LIMIT_S)
            opened = self.connect(opener, server.getsockname())
            accepted, _ = server.accept()
        with opened, accepted:
            for end in (opened, accepted):
                end.settimeout(LIMIT_S)
            yield (opened, accepted) if opener == "kernel" else (accepted, opened)


@contextlib.contextmanager
def sides(*flags: str, emulation: Mapping[str, str] | None = None) -> Iterator[Sides]:
    """Yields both sides on a link with these impairments, if any; `flags` go to the daemon."""
    with NetnsHost() as alone, NetnsHost() as host, contextlib.ExitStack() as stack:
        cable = None
        if emulation is None:
            join(alone, host)
        else:
            cable = stack.enter_context(bad_cable(alone, host, emulation))
        alone.vxlan(0)
        nic = HostedNic(host, 1, {0: host.peer}, *flags)
        stack.enter_context(serving([nic]))
        yield Sides(alone, nic, cable)


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def exchange(*ways: tuple[Socket, Socket, int]) -> None:
    """Sends the given number of bytes each way concurrently, ends each stream, and checks the received data."""
    data = [noise(size, seed) for seed, (_, _, size) in enumerate(ways)]
    running = [Running(_send, source, each) for (source, _, _), each in zip(ways, data, strict=True)]
    running += [Running(_receive, target, each) for (_, target, _), each in zip(ways, data, strict=True)]
    for thread in running:
        thread.finish()


def _send(source: Socket, data: bytes) -> None:
    source.sendall(data)
    source.shutdown(plain.SHUT_WR)


def _receive(target: Socket, expected: bytes) -> None:
    at = 0
    while part := target.recv(1 << 18):
        assert part == expected[at : at + len(part)], f"other bytes than were sent, within {len(part)} from {at} on"
        at += len(part)
    assert at == len(expected)


def send_back(end: Socket) -> None:
    """All that comes, and then the end."""
    while part := end.recv(1 << 18):
        end.sendall(part)
    end.shutdown(plain.SHUT_WR)


class Running(threading.Thread):
    """A call in its own thread; `finish` reraises its exception."""

    def __init__(self, call: Callable[P, None], *arguments: P.args, **more: P.kwargs) -> None:
        super().__init__(daemon=True)
        self._call = functools.partial(call, *arguments, **more)
        self._failed: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._failed = error

    def finish(self) -> None:
        self.join(LIMIT_S)
        assert not self.is_alive(), "nothing moved"
        if self._failed is not None:
            raise self._failed
