"""Control handlers: the requests that every NIC answers, and the dispatch of all others.

A handler takes a request, the file descriptor passed with it, and the client. It returns the reply and owns the file
descriptor, or raises OSError to refuse, and the caller closes it.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from softnic import underlay
from softnic.capture.hook import CaptureHook
from softnic.ipc import control
from softnic.link.reach.candidates import Candidate
from softnic.underlay import Address
from softnicd.event_log import EventLog
from softnicd.inherited import Identity, proves

PAGE = 100
"""Streams in one NicStats: as many as fit into a packet."""
_TAKE_FD = (control.Open, control.Bind, control.Connect, control.Capture, control.Register, control.Join)

Handler = Callable[[Any, int | None, object], control.Reply]


class ControlledNic(Protocol):
    """A NIC as these handlers see it."""

    event_log: EventLog

    def now(self) -> float: ...

    def catch_up(self) -> None:
        """Processes what happened before the request."""

    def describe(self) -> control.NicInfo: ...

    def summary(self) -> control.NicStats:
        """The statistics without streams, communicators and events."""

    def stream_infos(self, after: int, limit: int) -> list[control.StreamInfo]: ...

    def capture(self, queue: int) -> AbstractContextManager[CaptureHook]:
        """The captures of a queue, which stands still. Raises OSError (EINVAL)."""

    def add_peer(
        self, ip: int, address: Address | None, keys: Sequence[str], candidates: Sequence[Candidate]
    ) -> None: ...

    def names(self) -> Mapping[str, str]:
        """The addresses of nodes by name."""


class ControlHandlers:
    """Answers for a NIC.

    `others` has the handlers of requests beside those of every NIC; `refusal` is the error for requests without one.
    `identity_of` returns the identity of a stream, None if it has none.
    """

    def __init__(
        self,
        nic: ControlledNic,
        others: Mapping[type, Handler],
        refusal: str = "",
        identity_of: Callable[[int], Identity | None] = lambda _number: None,
    ) -> None:
        self._nic = nic
        self._identity_of = identity_of
        self._refusal = refusal
        self._by_request: dict[type, Handler] = {
            control.QueryNic: self._hello,
            control.QueryStats: self._stats,
            control.Capture: self._capture,
            control.AddPeer: self._add_peer,
            control.Resolve: self._resolve,
            control.QueryNames: self._names,
            **others,
        }

    def answer(self, request: control.Request, fd: int | None, client: object) -> control.Reply:
        """Answers a request. A Ping is answered at once, whatever the NIC has to do. Raises OSError to refuse."""
        if fd is not None and not isinstance(request, _TAKE_FD):
            raise OSError(errno.EINVAL, f"{type(request).__name__} takes no file descriptor")
        if isinstance(request, control.Ping):
            return control.Done()
        handler = self._by_request.get(type(request))
        if handler is None:
            raise OSError(errno.EOPNOTSUPP, self._refusal)
        self._nic.catch_up()
        return handler(request, fd, client)

    def answer_inherited(
        self, request: control.Request, fd: int | None, client: object, is_stranger: bool
    ) -> control.Reply:
        """Answers a process that inherited its connection; `is_stranger`: another user's. Raises OSError to refuse."""
        is_proof = proves(request, fd, is_stranger, self._identity_of)
        reply = self.answer(request, None if is_proof else fd, client)
        if is_proof and fd is not None:
            os.close(fd)
        return reply

    def _hello(self, request: control.QueryNic, _fd: int | None, _client: object) -> control.NicInfo:
        if request.version != control.VERSION:
            raise OSError(errno.EPROTO, f"the NIC speaks version {control.VERSION} of the control protocol")
        return self._nic.describe()

    def _stats(self, request: control.QueryStats, _fd: int | None, _client: object) -> control.NicStats:
        streams = self._nic.stream_infos(request.after, PAGE + 1)
        events = [] if request.after else self._nic.event_log.events
        return msgspec.structs.replace(
            self._nic.summary(), streams=streams[:PAGE], more=len(streams) > PAGE, events=events
        )

    def _capture(self, request: control.Capture, fd: int | None, _client: object) -> control.Done:
        if fd is None:
            raise OSError(errno.EINVAL, "a capture needs a file descriptor to write to")
        with self._nic.capture(request.queue) as capture:
            capture.start(
                fd,
                self._nic.now(),
                host_interface=request.host_interface,
                wire_interface=request.wire_interface,
                snaplen=request.snaplen,
            )
        return control.Done()

    def _add_peer(self, request: control.AddPeer, _fd: int | None, _client: object) -> control.Done:
        candidates = [
            Candidate(_endpoint(each.host, each.port), each.preference, each.relayed) for each in request.candidates
        ]
        address = None if candidates and not request.host else _endpoint(request.host, request.port)
        self._nic.add_peer(address_of(request.ip), address, request.keys, candidates)
        return control.Done()

    def _resolve(self, request: control.Resolve, _fd: int | None, _client: object) -> control.Resolved:
        wanted = request.name.lower().removesuffix(".").removesuffix(".softnic")
        for name, address in self._nic.names().items():
            if wanted in (name.lower(), address):
                return control.Resolved(name, address)
        raise OSError(errno.ENOENT, f"the NIC knows no node {request.name!r}")

    def _names(self, _request: control.QueryNames, _fd: int | None, _client: object) -> control.NodeNames:
        return control.NodeNames(dict(self._nic.names()))


def address_of(text: str) -> int:
    """An IPv4 address in host order. Raises OSError (EINVAL)."""
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        raise OSError(errno.EINVAL, f"{text!r} is not an IPv4 address") from None


def _endpoint(host: str, port: int) -> Address:
    """A UDP address. Raises OSError (EINVAL)."""
    if not underlay.is_address(host):
        raise OSError(errno.EINVAL, f"{host!r} is not an IP address")
    return underlay.numeric(host), checked_port(port)


def checked_port(number: int) -> int:
    """Raises OSError (EINVAL) for a number that is not a port."""
    if not 0 <= number <= 0xFFFF:
        raise OSError(errno.EINVAL, f"{number} is not a port")
    return number
