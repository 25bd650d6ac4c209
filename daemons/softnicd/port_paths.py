"""Paths and codecs of ports: what turns in C have to know of a flow to send its segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softnic._native import lib
from softnic.link.base import UdpPath
from softnic.link.udp import VxlanLink
from softnic.nic.flows import agreed, attach
from softnic.nic.node import Node
from softnic.nic.offload import PLAIN
from softnic.tcp.connection import Connection
from softnicd.stream_table import StreamTable
from softnicd.streams import Stream


class PortPaths:
    """Prepares ports for the `sn_turn` at `turn`. `is_direct`: C itself sends frames over the wire."""

    def __init__(
        self, turn: Any, node: Node, wire: VxlanLink, table: StreamTable, now: Callable[[], float], is_direct: bool
    ) -> None:
        self._turn, self._node, self._wire, self._table, self._now = turn, node, wire, table, now
        self._direct = is_direct

    def update(self) -> None:
        """Forget the paths of C if addresses or endpoints of peers have changed."""
        turn = self._turn
        epoch = self._node.host.address_changes + self._wire.path_changes
        if epoch != turn.path_epoch:
            turn.path_epoch, turn.path_count = epoch, 0

    def prepare_receiver(self, run: Any) -> None:
        """Prepare the flow of a run, if it has an established stream and is not prepared."""
        connection = self._node.host.tcp.lookup((run.src, run.sport, run.dport))
        stream = None if connection is None else self._table.by_connection.get(connection)
        if stream is not None and connection is not None and stream.c.path_epoch < 0:
            self.prepare(stream, connection)

    def prepare(self, stream: Stream, connection: Connection) -> None:
        """Look up the path of an established flow, and the codec of the tag that it sends next, for the next turns."""
        if not connection.established or not self._find_path(stream.c, connection):
            return
        port, nic = stream.c, self._node.nic
        port.path_epoch = self._turn.path_epoch
        codecs = agreed(connection, nic.codecs)
        port.peer_codecs = -1 if codecs is None else codecs
        buffer = connection.snd.buffer
        port.tag = number = lib.sn_send_buffer_tag_range(buffer.c, connection.snd.snd_nxt).tag
        tag = buffer.tag_numbered(number)
        choice, adaptive = PLAIN, None
        if nic.offloads.selects(tag.tos):
            choice, adaptive = nic.choose_codec(tag.tos, tag.codec, codecs, connection.nic or attach(connection))
        port.codec, port.parameter = choice.number, choice.parameter
        if adaptive is not None:
            port.tag = -1  # Python measures it

    def _find_path(self, port: Any, connection: Connection) -> bool:
        """Set the path of a port. Return whether there is one."""
        if port.is_loopback:
            port.destination, port.path_until = int.from_bytes(self._node.nic.mac), float("inf")
            return True
        resolved = self._node.host.resolve(connection.peer[0], self._now())
        if resolved is None:
            return False
        if self._direct:
            path = self._wire.direct_path(resolved[0])
            if path is None:
                return False
            _, port.peer_address, port.peer_port, _, port.gso = path
            self._note(int.from_bytes(resolved[0]), path)
        port.destination, port.path_until = int.from_bytes(resolved[0]), resolved[1]
        return True

    def _note(self, destination: int, path: UdpPath) -> None:
        """Tell the emulated link's C where frames to a MAC address go."""
        turn = self._turn
        known = any(turn.paths[index].destination == destination for index in range(turn.path_count))
        if not known and turn.path_count < lib.SN_TURN_PATHS:
            new = turn.paths[turn.path_count]
            new.destination = destination
            _, new.address, new.port, _, new.gso = path
            turn.path_count += 1
