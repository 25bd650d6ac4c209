"""A meeting server as a process: its UDP sockets, its relay, its tunnels, and what it writes to its log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import to_builtins

from softnic import underlay
from softnic.link.reach.messages import MOST_BYTES
from softnic.link.reach.relay_table import RelayTable
from softnic.link.reach.server import OTHER, MeetingServer, Out
from softnic.link.reach.token import Admit
from softnic.link.sockets import bind_reason, open_socket
from softnic.meeting.relay_sockets import RelaySockets
from softnic.meeting.tunnels import Tunnels
from softnic.packet.frames import Frames
from softnic.underlay import Address

PORT, RELAY_PORTS = 9470, range(9500, 10_000)
"""The main port, and those of the relay, unless others are given."""
_CHOICES = 16
"""Ports that the system chooses, until the next two are free, too."""
_DATAGRAMS = 256
"""Datagrams of one socket before the others have their turn."""


@dataclass(frozen=True, slots=True)
class MeetingSettings:
    """What a server is started with."""

    listen: Address
    """The main port; the next two are used, too."""
    admit: Admit
    """Whom it serves (`token.admits_all`, `token.admits_one`)."""
    other: str = ""
    """A further address of this host; empty: none."""
    relay_ports: Sequence[int] = ()
    relay_bps: float = 1e9
    """Limit of each job."""
    tcp: Sequence[Address] = ()
    """Where tunnels connect to."""


class MeetingService:
    """A server that runs until it is stopped.

    Parameters
    ----------
    settings : MeetingSettings
        Addresses, secret and limits.
    log : callable
        Takes a line.

    Raises
    ------
    OSError
        If an address cannot be bound.
    """

    def __init__(self, settings: MeetingSettings, log: Callable[[str], None]) -> None:
        self._settings, self._log = settings, log
        self._loop = asyncio.get_running_loop()
        self._epoch = time.time() - time.monotonic()
        self._stopped = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._tcp: list[asyncio.Server] = []
        self._sockets = _open(settings)
        self.port = next(iter(self._sockets))
        """The main port: the one that the system chose, if 0 was asked for."""
        self.relay = RelaySockets(
            settings.listen[0],
            self._loop,
            on_request=self._on_datagram,
            through_tunnel=lambda address, port, frames: self.tunnels.send_frames(address, port, frames),
            clock=self._now,
        )
        self._table = RelayTable(
            settings.relay_ports, settings.relay_bps, lambda port: self.relay.open(port, self._table), self.relay.close
        )
        self.server = MeetingServer(
            settings.admit, os.urandom, self._table, port=self.port, has_other=bool(settings.other), log=log
        )
        self.tunnels = Tunnels(
            grant_in=lambda data: self.server.grant_in(data, self._now()),
            on_request=self._on_datagram,
            on_frames=self._on_frames,
        )
        for port, each in self._sockets.items():
            self._loop.add_reader(each.fileno(), self._on_readable, port, each)

    def _now(self) -> float:
        """Return Unix time, which does not jump when the clock of this host is set."""
        return self._epoch + time.monotonic()

    # --- datagrams

    def _on_readable(self, port: int, own: socket.socket) -> None:
        now = self._now()
        for _ in range(_DATAGRAMS):
            try:
                data, source = own.recvfrom(MOST_BYTES + 1)
            except OSError:
                break
            self._send(self.server.on_datagram(port, underlay.of_socket(source), data, now))
        self._schedule()

    def _on_datagram(self, port: int, source: Address, data: bytes) -> None:
        """Take a message that came to a port of the relay, or through a tunnel."""
        self._send(self.server.on_datagram(port, source, data, self._now()))
        self._schedule()

    def _on_frames(self, port: int, source: Address, frames: Frames) -> None:
        self.relay.forward(self._table, port, source, frames)

    def _send(self, out: list[Out]) -> None:
        for port, address, data in out:
            if not underlay.is_address(address[0]):
                self.tunnels.send(address, port, data)
            elif (own := self._sockets.get(port)) is not None:
                with contextlib.suppress(OSError):  # full, or unreachable: it is repeated
                    own.sendto(data, underlay.socket_address(address, own.family))
            else:
                self.relay.send(port, address, data)

    def _schedule(self) -> None:
        due = self.server.next_time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else self._loop.call_later(max(0.0, due - self._now()), self._poll)

    def _poll(self) -> None:
        self._send(self.server.poll(self._now()))
        self._schedule()

    # --- life

    async def run(self) -> None:
        """Serve until `stop`, or until SIGTERM or SIGINT; SIGUSR1 logs the counters. Raises OSError if TCP cannot be
        bound."""
        handled = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
        try:
            for host, port in self._settings.tcp:
                await self._listen(host, port)
            for number in handled:
                self._loop.add_signal_handler(number, self._on_signal, number)
            self._log(f"listens on UDP ports {self.port} to {self.port + 2}{self._about_tcp()}")
            await self._stopped.wait()
        finally:
            for number in handled:
                self._loop.remove_signal_handler(number)
            self.close()
        self._log_counters()

    async def _listen(self, host: str, port: int) -> None:
        try:
            self._tcp.append(
                await self._loop.create_server(self.tunnels.protocol, None if host == "::" else host, port)
            )
        except OSError as error:
            text = f"cannot bind {underlay.text((host, port))} for TCP: {bind_reason(error)}"
            raise OSError(error.errno, text) from error

    @property
    def tcp_ports(self) -> list[int]:
        """Where tunnels connect to."""
        return [server.sockets[0].getsockname()[1] for server in self._tcp if server.sockets]

    def _about_tcp(self) -> str:
        return f", TCP port {', '.join(map(str, self.tcp_ports))}" if self._tcp else ""

    def _on_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGUSR1:
            self._log_counters()
        else:
            self.stop()

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    def close(self) -> None:
        """Close all sockets: of a server that another program runs, without `run`."""
        if self._timer is not None:
            self._timer.cancel()
        for server in self._tcp:
            server.close()
        self.tunnels.close_all()
        self.relay.close_all()
        for each in self._sockets.values():
            self._loop.remove_reader(each.fileno())
            each.close()

    def counters(self) -> dict[str, int]:
        """Return all counters, and how many jobs, nodes, relay ports and tunnels there are."""
        gauges = {
            "jobs": self.server.jobs,
            "nodes": self.server.nodes,
            "relay_ports": len(self._table),
            "tunnels": len(self.tunnels),
        }
        counted = (self.server.counted, self.relay.counted, self.tunnels.counted)
        return gauges | {name: value for each in counted for name, value in to_builtins(each).items()}

    def _log_counters(self) -> None:
        self._log(" ".join(f"{name}={value}" for name, value in self.counters().items() if value) or "nothing counted")


def _open(settings: MeetingSettings) -> dict[int, socket.socket]:
    """Return the sockets by port, the main one first, OTHER last. Raises OSError."""
    host, wanted = settings.listen
    for tries in range(_CHOICES):
        with contextlib.ExitStack() as opened:
            main = opened.enter_context(open_socket((host, wanted)))
            port = main.getsockname()[1]
            try:
                sockets = {port: main}
                for further in (port + 1, port + 2):
                    sockets[further] = opened.enter_context(open_socket((host, further)))
            except (OSError, OverflowError):
                if wanted or tries == _CHOICES - 1:
                    raise
                continue
            if settings.other:
                sockets[OTHER] = opened.enter_context(open_socket((settings.other, port)))
            opened.pop_all()
            return sockets
    raise AssertionError
