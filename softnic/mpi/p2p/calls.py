"""The calls with one message: of buffers and of objects, blocking, nonblocking and persistent, and probes."""

from __future__ import annotations

from softnic.mpi.p2p.objects import ObjectMessages
from softnic.mpi.p2p.persistent import PersistentMessages
from softnic.mpi.p2p.probe import Probes


class PointToPoint(PersistentMessages, ObjectMessages, Probes):
    """The calls with one message. Messages are kept at the receiver, in the order of sending, until received."""
