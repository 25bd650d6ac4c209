"""What ranks have connected: the channels, credits and memory of a communicator, and a rank that vanishes."""

from __future__ import annotations

from softnic.comm.connections import CommConnections
from softnic.comm.offload_queue import OffloadQueue
from softnic.comm.scratch import Scratch
from softnic.mpi.communicator import Communicator


def connections_of(comm: Communicator) -> CommConnections:
    """Return the connections of a communicator that has made them."""
    session = comm._state._connections
    assert session is not None
    return session


def vanish(comm: Communicator) -> None:
    """Close the connections of a rank as the end of its process does."""
    connections = connections_of(comm)
    connections.progress.close()
    if connections.queue is not None:
        for connection in (connections.queue._connection, *connections.queue._leases):
            connection.close()
    comm._state._connections = None


def send_control_bytes(comm: Communicator, data: bytes) -> None:
    """Send bytes to every other rank on the connection for control messages."""
    for peer in connections_of(comm).progress.peers.values():
        assert peer.control is not None
        peer.control.send(data)


def send_credit(comm: Communicator, dest: int) -> int:
    """Return the bytes of inline messages that a rank may send to another one now."""
    return connections_of(comm).progress.peers[dest].outbox.credit


def offload_queue(comm: Communicator) -> OffloadQueue:
    """Return the queue to the NIC of a communicator's collectives."""
    queue = connections_of(comm).queue
    assert queue is not None
    return queue


def held_bytes(comm: Communicator) -> int:
    """Return the bytes of messages of one rank, the largest, that are kept until they are received."""
    return max(connections_of(comm).matcher._held.values())


def scratch_of(comm: Communicator) -> Scratch:
    """Return the registered scratch memory of a communicator."""
    return connections_of(comm).scratch
