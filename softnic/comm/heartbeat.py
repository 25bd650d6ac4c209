"""Heartbeat for a silent NIC.

A NIC that ended closes its sockets, which is seen at once. A NIC that is stopped or stuck looks like one without news;
so while a process waits, it pings the NIC over a control connection of its own. All communicators of a process over a
NIC share one heartbeat: what one of them hears of the NIC counts for all. Time is an argument.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading

from softnic.ipc import control

HEARTBEAT_INTERVAL_S = 0.5
HEARTBEAT_TIMEOUT_S = 3.0
"""A NIC that answers nothing for this long is lost: all ranks learn of it within 5 s."""

STALL_S = 2.0
"""A NIC that was silent for this long may have been given up by peers, whose resets it then reports."""
_AFTER_STALL_S = 1.0
"""How long after a stall resets are attributed to it."""


class Heartbeat:
    """Checks the NIC at a control socket. Raises OSError (ENETDOWN) if there is none. Thread-safe."""

    def __init__(self, path: str, now: float) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(HEARTBEAT_TIMEOUT_S)
        self._lock = threading.RLock()
        self._users = 0
        self._waiting = False
        self._polled_at = self._replied_at = now
        self._stalled_until = 0.0
        self._silent_s = 0.0
        """Since the request. Time between two polls counts up to the interval: this process may have been stopped."""
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise self._lost(error.strerror or str(error)) from error
        self._socket.setblocking(False)

    def on_reply(self, now: float) -> None:
        """Note that the NIC has sent something, on any connection."""
        if self._waiting and self._silence(now) >= STALL_S:
            self._stalled_until = now + _AFTER_STALL_S
        self._replied_at = self._polled_at = now
        self._silent_s = 0.0

    def poll(self, now: float) -> None:
        """Request a reply if it is time, at least every HEARTBEAT_INTERVAL_S. Raises OSError (ENETDOWN)."""
        with self._lock:
            if self._waiting:
                self._receive(now)
                self._silent_s = self._silence(now)
                if self._waiting and self._silent_s >= HEARTBEAT_TIMEOUT_S:
                    raise self._lost(f"it has not answered for {HEARTBEAT_TIMEOUT_S:g} s")
            self._polled_at = now
            if not self._waiting and now - self._replied_at >= HEARTBEAT_INTERVAL_S:
                self._request()

    def _silence(self, now: float) -> float:
        return self._silent_s + min(now - self._polled_at, HEARTBEAT_INTERVAL_S)

    def has_stalled(self, now: float) -> bool:
        """Return whether the NIC was silent for so long, just now, that resets of peers are its own fault."""
        return now < self._stalled_until

    def close(self) -> None:
        self._socket.close()

    def release(self) -> None:
        """Undo one `shared_heartbeat`: the last user closes it."""
        with _shared_lock:
            self._users -= 1
            if self._users:
                return
            self._forget()
        self.close()

    def _forget(self) -> None:
        """Have later communicators make a heartbeat of their own."""
        if _shared.get(self._path) is self:
            del _shared[self._path]

    @property
    def _has_ended(self) -> bool:
        """Whether the NIC has closed the connection, as one that has been started again has."""
        poll = select.poll()
        poll.register(self._socket, 0)
        return bool(poll.poll(0))

    def _request(self) -> None:
        try:
            self._socket.send(control.encode(control.Ping()))
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        self._waiting = True
        self._silent_s = 0.0

    def _receive(self, now: float) -> None:
        try:
            reply = self._socket.recv(control.MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        if not reply:
            raise self._lost("it closed the connection")
        self.on_reply(now)
        self._waiting = False

    def _lost(self, why: str) -> OSError:
        with _shared_lock:
            self._forget()
        return OSError(errno.ENETDOWN, f"the NIC at {self._path} is gone: {why}")


_shared: dict[str, Heartbeat] = {}
"""By control socket, those that communicators of this process use."""
_shared_lock = threading.RLock()


def shared_heartbeat(path: str, now: float) -> Heartbeat:
    """Return this process's heartbeat of the NIC at a control socket, to be released. Raises OSError (ENETDOWN)."""
    with _shared_lock:
        found = _shared.get(path)
        if found is None or found._has_ended:
            found = _shared[path] = Heartbeat(path, now)
        found._users += 1
        return found


def _forget_in_fork() -> None:
    """Close a forked process's copies: replies on them are its parent's."""
    global _shared_lock
    _shared_lock = threading.RLock()  # another thread may have held it
    for heartbeat in _shared.values():
        heartbeat.close()
    _shared.clear()


os.register_at_fork(after_in_child=_forget_in_fork)
