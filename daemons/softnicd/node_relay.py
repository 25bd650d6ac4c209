"""The meeting server that a NIC is for its own job, with a relay: `relay = true`.

It serves the job's other nodes as `softnic meet` does, and nobody else: the admission of another job does not follow
from this one's token. They learn its addresses from this node's card.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

from msgspec import to_builtins

from softnic.link.reach.token import Token, admits_one
from softnic.meeting.service import PORT, RELAY_PORTS, MeetingService, MeetingSettings
from softnic.underlay import Address


class NodeRelay:
    """A server on the running event loop, until `close`.

    Parameters
    ----------
    token : Token
        The job.
    host : str
        Address to bind: that of the NIC's wire.
    log : callable
        Takes a line.

    Raises
    ------
    OSError
        If no ports can be bound.
    """

    def __init__(self, token: Token, host: str, log: Callable[[str], None]) -> None:
        admit = admits_one(token)
        try:
            self._service = MeetingService(MeetingSettings((host, PORT), admit, relay_ports=RELAY_PORTS), log)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            self._service = MeetingService(MeetingSettings((host, 0), admit, relay_ports=RELAY_PORTS), log)

    def addresses(self, hosts: Iterable[str]) -> list[Address]:
        """Return where it is reached, of a host with these addresses."""
        return [(host, self._service.port) for host in dict.fromkeys(hosts)]

    def counters(self) -> dict[str, int]:
        """Return what was relayed, and what not, by name."""
        service = self._service
        return {
            "relay_nodes": service.server.nodes,
            **to_builtins(service.relay.counted),
            **{f"relay_server_{name}": value for name, value in to_builtins(service.server.counted).items()},
        }

    def close(self) -> None:
        """Relay no more."""
        self._service.close()
