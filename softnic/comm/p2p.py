"""The calls with one message: of buffers and of objects, blocking, nonblocking and persistent, and probes."""

from __future__ import annotations

from softnic.comm.p2p_objects import ObjectMessages
from softnic.comm.p2p_persistent import PersistentMessages
from softnic.comm.p2p_probe import Probes


class PointToPoint(PersistentMessages, ObjectMessages, Probes):
    """The calls with one message. Messages are kept at the receiver, in the order of sending, until received."""
