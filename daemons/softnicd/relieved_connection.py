"""A connection that is not probed for a dead peer while another one to the same process is.

Two connections with SO_KEEPALIVE to each rank, of the process and of the engine that the NIC runs for it, would send
twice as many probes. What probes of the first find, those of the other do, too: a node that is silent or has restarted,
a link that is cut, a process that has ended. So when the other connection ends,

- because its peer is silent, and this one is idle as well: this one ends with the same error, at once;
- otherwise, it is probed from then on. Its peer may have reset both, and the reset been lost.
"""

from __future__ import annotations

import errno

from softnic.tcp.connection import Connection


class RelievedConnection:
    """`connection`, which has SO_KEEPALIVE, and `probed`, the other one."""

    __slots__ = ("_connection", "_keepalive", "_probed")

    def __init__(self, connection: Connection, probed: Connection, now: float) -> None:
        self._connection = connection
        self._probed = probed
        self._keepalive = connection.keepalive
        connection.set_keepalive(None, now)

    @property
    def is_due(self) -> bool:
        """Whether the other connection has ended, or one side of it."""
        return not self._probed.established

    def end_relief(self, now: float) -> None:
        """Do without the other connection."""
        connection, probed = self._connection, self._probed
        if connection.ended or self._keepalive is None:
            return
        idle_s, _, _ = self._keepalive
        if probed.error == errno.ETIMEDOUT and now >= connection.last_heard + idle_s:
            text = f"{connection.peer_name} did not answer for {now - probed.last_heard:.1f} s"
            connection.abort(now, errno.ETIMEDOUT, text)
        else:
            connection.set_keepalive(self._keepalive, now)
