"""Whether a NIC lives that says nothing: while somebody waits for it, it is asked every now and then.

A NIC that ended closes what leads to it, and that is seen at once. One that stands still (stopped, or stuck) looks like
one that has nothing to tell; so it is asked who it is, over a control connection of its own. Time is an argument.
"""

from __future__ import annotations

import errno
import socket

from softnic.ipc import control

EVERY_S = 0.5
PATIENCE_S = 3.0
"""A NIC that answers nothing for so long is lost: all ranks learn of it within 5 s."""

STOOD_S = 2.0
"""A NIC that was silent for so long may have been given up by others, whose end it then tells."""
EXCUSED_S = 1.0
"""For how long after that."""


class Pulse:
    """Of the NIC at a control socket. Raises OSError (ENETDOWN) where nobody listens there."""

    def __init__(self, path: str, now: float) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(PATIENCE_S)
        self._asked = False
        self._looked = self._heard = now
        self._excused_until = 0.0
        self._silent_s = 0.0
        """Since it was asked. What passed while nobody looked here counts little: this process may have stood still."""
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise self._lost(error.strerror or str(error)) from error
        self._socket.setblocking(False)

    def heard(self, now: float) -> None:
        """The NIC has said something, whatever it was."""
        if self._asked and self._silent_s >= STOOD_S:
            self._excused_until = now + EXCUSED_S
        self._heard = self._looked = now
        self._silent_s = 0.0

    def beat(self, now: float) -> None:
        """To be called at least every EVERY_S by who waits. Raises OSError (ENETDOWN)."""
        if self._asked:
            self._listen(now)
            self._silent_s += min(now - self._looked, EVERY_S)
            if self._asked and self._silent_s >= PATIENCE_S:
                raise self._lost(f"it has not answered for {PATIENCE_S:g} s")
        self._looked = now
        if not self._asked and now - self._heard >= EVERY_S:
            self._ask()

    def stood_still(self, now: float) -> bool:
        """Whether the NIC has been silent for so long, just now, that what it says of others is its own doing."""
        return now < self._excused_until

    def close(self) -> None:
        self._socket.close()

    def _ask(self) -> None:
        try:
            self._socket.send(control.encode(control.Ping()))
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        self._asked = True
        self._silent_s = 0.0

    def _listen(self, now: float) -> None:
        try:
            answer = self._socket.recv(control.MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        if not answer:
            raise self._lost("it closed the connection")
        self.heard(now)
        self._asked = False

    def _lost(self, why: str) -> OSError:
        return OSError(errno.ENETDOWN, f"the NIC at {self._path} is gone: {why}")
