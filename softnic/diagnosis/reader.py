"""Asks NICs what their collectives wait for, again and again, and times their answers."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Iterable, Sequence

import msgspec

from softnic.diagnosis.samples import NicSample
from softnic.ipc import control
from softnic.ipc.collectives_info import CollectivesInfo, QueryCollectives

_INTERVAL_S = 0.05


class _Asked:
    """A connection to one NIC, with at most one question open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.asked_at: float | None = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.socket.setblocking(False)
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise

    def ask(self, now: float) -> None:
        if self.asked_at is None:
            self.socket.send(control.encode(QueryCollectives()))
            self.asked_at = now

    def answer(self) -> CollectivesInfo | None:
        """Return the answer. Raises OSError if the NIC is gone, or cannot answer this."""
        packet = self.socket.recv(control.MAX_MESSAGE)
        self.asked_at = None
        try:
            reply = control.decode_reply(packet)
        except msgspec.MsgspecError:
            raise OSError(errno.EPROTO, os.strerror(errno.EPROTO)) from None
        return reply if isinstance(reply, CollectivesInfo) else None


def read_samples(paths: Iterable[str | os.PathLike[str]], seconds: float) -> list[NicSample]:
    """Return samples of the NICs at these control sockets, taken for so many seconds; at least two.

    NICs that do not listen are left out. Raises OSError if none does.
    """
    nics: list[_Asked] = []
    missing = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in paths:
        try:
            nics.append(_Asked(os.fspath(path)))
        except OSError as error:
            missing = error
    if not nics:
        raise missing
    until = time.monotonic() + seconds
    samples: list[NicSample] = []
    try:
        while len(samples) < 2 or time.monotonic() < until:
            samples.append(_sample(nics))
    finally:
        for nic in nics:
            nic.socket.close()
    return samples


def _sample(nics: Sequence[_Asked]) -> NicSample:
    """Ask all NICs, and return what has come at the end of the interval."""
    began = time.monotonic()
    answers: dict[str, CollectivesInfo] = {}
    reply_s: dict[str, float] = {}
    waiting: dict[int, _Asked] = {}
    for nic in nics:
        try:
            nic.ask(began)
        except OSError:
            continue
        waiting[nic.socket.fileno()] = nic
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while (left_s := began + _INTERVAL_S - time.monotonic()) > 0:
        for fd, _ in poll.poll(max(1, int(left_s * 1000))):
            nic = waiting.pop(fd)
            poll.unregister(fd)
            asked_at = nic.asked_at or began
            try:
                answer = nic.answer()
            except OSError:
                continue
            reply_s[nic.path] = time.monotonic() - asked_at
            if answer is not None:
                answers[nic.path] = answer
    now = time.monotonic()
    reply_s |= {nic.path: now - nic.asked_at for nic in waiting.values() if nic.asked_at is not None}
    return NicSample(answers, reply_s, time.time())
