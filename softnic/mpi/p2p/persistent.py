"""Persistent requests: Send_init, Recv_init and their twins. Start begins the message, each time anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softnic.comm.error_classes import ERR_REQUEST
from softnic.comm.errors import ArgumentError
from softnic.mpi.constants import ANY_SOURCE, ANY_TAG
from softnic.mpi.p2p.base import SendMode
from softnic.mpi.p2p.buffers import BufferMessages
from softnic.mpi.requests.request import Request
from softnic.mpi.requests.sets import Awaited


class Prequest(Request):
    """A call that can be started many times. Between a wait and the next Start it is inactive, and waits do nothing.

    Parameters
    ----------
    request
        A Request of this kind, of which this becomes another name. None: it is a null request.
    status
        Status to fill in, or None.
    """

    @classmethod
    def of(cls, restart: Callable[[], Awaited]) -> Prequest:
        """Return the Request of a call, which `restart` begins."""
        made = cls()
        made._shared.restart = restart
        made._shared.kind = Prequest
        return made

    def Start(self) -> None:
        """Begin the call. Raises ArgumentError if it is active, or null."""
        shared = self._shared
        if shared.restart is None or shared.operation is not None:
            why = "it is MPI.REQUEST_NULL" if shared.restart is None else "it is active: wait for it first"
            raise ArgumentError(f"Start of a persistent request: {why}", call="Start", code=ERR_REQUEST)
        shared.operation = shared.restart()

    @classmethod
    def Startall(cls, requests: Sequence[Prequest]) -> None:
        """Begin the calls of several Requests."""
        for request in requests:
            request.Start()


class PersistentMessages(BufferMessages):
    """The calls that make persistent requests."""

    def Send_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Return a Request of Send."""
        return self._send_init("Send_init", buf, dest, tag, SendMode.STANDARD)

    def Ssend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Return a Request of Ssend."""
        return self._send_init("Ssend_init", buf, dest, tag, SendMode.SYNCHRONOUS)

    def Bsend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Return a Request of Bsend."""
        return self._send_init("Bsend_init", buf, dest, tag, SendMode.BUFFERED)

    def Rsend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Return a Request of Rsend."""
        return self._send_init("Rsend_init", buf, dest, tag, SendMode.STANDARD)

    def Recv_init(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Prequest:
        """Return a Request of Recv."""
        return Prequest.of(lambda: self._start_irecv("Recv_init", buf, source, tag))

    def _send_init(self, call: str, buf: Any, dest: int, tag: int, mode: SendMode) -> Prequest:
        return Prequest.of(lambda: self._start_isend(call, buf, dest, tag, mode))
