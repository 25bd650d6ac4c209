"""What the control socket's requests do: each is one method that returns its reply or raises OSError to refuse."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from softnic import codecs
from softnic.ipc import control
from softnic.ipc.control import NIC_BLOCKS, NIC_CODEC, SOL_NIC
from softnic.packet import ipv4
from softnic.tcp.algorithms import ALGORITHMS
from softnicd.streams import Stream
from softnicd.table import MAX_STREAMS

if TYPE_CHECKING:
    from softnicd.pump import Daemon

PAGE = 100
"""Streams in one NicStats: so many fit into a packet."""
MAX_FILLER = 64 << 20

_TAKE_DESCRIPTORS = (control.Bind, control.Connect, control.Capture, control.Register, control.Join)

_OPTIONS: dict[tuple[int, int], tuple[str, int, int]] = {
    (socket.IPPROTO_IP, socket.IP_TOS): ("tos", 0, 255),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): ("keepalive", 0, 2**31),
    (socket.SOL_SOCKET, socket.SO_LINGER): ("reset_on_close", 0, 1),
    (SOL_NIC, NIC_BLOCKS): ("blocks", 0, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY): ("nodelay", 0, 2**31),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): ("keepalive_idle_s", 1, 32767),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): ("keepalive_interval_s", 1, 32767),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): ("keepalive_count", 1, 127),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): ("user_timeout_ms", 0, 2**31),
}
"""The setting of each option and what it may be, as in tcp(7)."""
_OF_GROUPS = frozenset(
    {
        "keepalive",
        "keepalive_idle_s",
        "keepalive_interval_s",
        "keepalive_count",
        "user_timeout_ms",
        "reset_on_close",
        "congestion",
    }
)
"""What may be set of a stream that is a group's."""


def address_of(text: str) -> int:
    """Raises OSError (EINVAL)."""
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        raise OSError(errno.EINVAL, f"{text!r} is no IPv4 address") from None


def text_of(address: int) -> str:
    return str(ipaddress.IPv4Address(address))


class Requests:
    """Answers for a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._client: object = None
        """Who asks."""
        self._methods: dict[type, Callable[[Any, int | None], control.Reply]] = {
            control.Hello: self._hello,
            control.Bind: self._bind,
            control.Listen: self._listen,
            control.Connect: self._connect,
            control.SetOption: self._set_option,
            control.Status: self._status,
            control.Stats: self._stats,
            control.Capture: self._capture,
            control.Register: self._register,
            control.Unregister: self._unregister,
            control.UseRecords: self._use_records,
            control.Withdraw: self._withdraw,
            control.Join: self._join,
            control.AddPeer: self._add_peer,
        }

    def answer(self, request: control.Request, descriptor: int | None, client: object) -> control.Reply:
        if descriptor is not None and not isinstance(request, _TAKE_DESCRIPTORS):
            raise OSError(errno.EINVAL, f"{type(request).__name__} takes no descriptor")
        self._client = client
        self._daemon.catch_up()
        return self._methods[type(request)](request, descriptor)

    def _stream(self, number: int) -> Stream:
        stream = self._daemon.table.get(number)
        if stream is None:
            raise OSError(errno.EBADF, f"the NIC has no stream {number}")
        return stream

    def _hello(self, request: control.Hello, _: int | None) -> control.NicInfo:
        if request.version != control.VERSION:
            raise OSError(errno.EPROTO, f"the NIC speaks version {control.VERSION} of the control protocol")
        return self._daemon.info

    def _bind(self, request: control.Bind, descriptor: int | None) -> control.Opened:
        end = self._stream_end(descriptor)
        address = self._local(request.address)
        reservation = self._daemon.host.reserve(_port(request.port), request.reuse)
        stream = self._added(end)
        stream.address, stream.port = address, reservation
        return control.Opened(stream.number, text_of(address), stream.port)

    def _stream_end(self, descriptor: int | None) -> int:
        """Checks that the descriptor is what a stream needs. Raises OSError (EINVAL, ENOTSOCK, ENOBUFS)."""
        if descriptor is None:
            raise OSError(errno.EINVAL, "the stream's descriptor is missing")
        if self._daemon.table.full:
            raise OSError(errno.ENOBUFS, f"the NIC has {MAX_STREAMS} streams already")
        end = socket.socket(fileno=descriptor)
        fits = (end.family, end.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
        end.detach()
        if not fits:
            raise OSError(errno.EINVAL, "a stream is one end of a Unix stream pair")
        return descriptor

    def _added(self, end: int) -> Stream:
        stream = self._daemon.table.add(end)
        stream.program = self._daemon.server.program_of(self._client)
        return stream

    def _local(self, text: str) -> int:
        address = address_of(text)
        if address not in (0, self._daemon.host.ip):
            raise OSError(errno.EADDRNOTAVAIL, f"{text} is not this NIC's address, which is {self._daemon.info.ip}")
        return address

    def _listen(self, request: control.Listen, _: int | None) -> control.Opened:
        stream = self._stream(request.stream)
        if stream.connection is not None or not stream.port:
            raise OSError(errno.EINVAL, "only a bound stream can listen")
        if not 0 <= request.backlog <= 0xFFFF:
            raise OSError(errno.EINVAL, "a backlog is from 0 to 65535")
        if stream.listener is None:
            self._daemon.listen(stream, request.backlog)
        else:
            stream.listener.set_backlog(request.backlog)
        return control.Opened(stream.number, text_of(stream.address), stream.port)

    def _connect(self, request: control.Connect, descriptor: int | None) -> control.Opened:
        if not 0 <= request.filler <= MAX_FILLER:
            raise OSError(errno.EINVAL, f"filler is from 0 to {MAX_FILLER} bytes")
        if not request.stream:
            self._check_target(request)
            stream = self._added(self._stream_end(descriptor))
            try:
                return self._start(stream, request)
            except OSError:
                self._daemon.table.forget(stream)  # the descriptor stays the caller's to close
                raise
        if descriptor is not None:
            raise OSError(errno.EINVAL, "a stream that the NIC has needs no descriptor")
        stream = self._stream(request.stream)
        if stream.connection is not None or stream.listener is not None:
            raise OSError(errno.EISCONN, "the stream is in use")
        try:
            self._check_target(request)
            return self._start(stream, request)
        except OSError:
            stream.filler = request.filler
            stream.drain()
            raise

    def _start(self, stream: Stream, request: control.Connect) -> control.Opened:
        target = address_of(request.address), request.port
        self._daemon.connect(stream, target, request.filler)
        assert stream.connection is not None
        address, port = stream.connection.local
        return control.Opened(stream.number, text_of(address), port)

    def _check_target(self, request: control.Connect) -> None:
        """Refuses what cannot be the address of one host."""
        address, port = address_of(request.address), _port(request.port)
        if not address or not port:
            raise OSError(errno.EADDRNOTAVAIL, f"nothing is at {request.address}:{port}")
        if not ipv4.is_host(address):
            why = "it is not the address of one host"
            if address >> 24 == 127:
                why = f"a node has no loopback interface; this one's address is {self._daemon.info.ip}"
            raise OSError(errno.EHOSTUNREACH, f"no route to {request.address}:{port}: {why}")

    def _set_option(self, request: control.SetOption, _: int | None) -> control.Done:
        option = (request.level, request.name)
        changed: dict[str, Any]
        if option == (SOL_NIC, NIC_CODEC):
            if not isinstance(request.value, str):
                raise OSError(errno.EINVAL, "a codec is a text, as in bounded:10")
            changed = {"codec": _codec(request.value)}
        elif option == (socket.IPPROTO_TCP, socket.TCP_CONGESTION):
            if request.value not in ALGORITHMS:
                raise OSError(errno.ENOENT, f"{request.value!r} is no algorithm: {', '.join(ALGORITHMS)} are")
            changed = {"congestion": request.value}
        elif option in _OPTIONS:
            name, least, most = _OPTIONS[option]
            if not isinstance(request.value, int) or not least <= request.value <= most:
                raise OSError(errno.EINVAL, f"{name} is a number from {least} to {most}, not {request.value!r}")
            changed = {name: request.value}
        else:
            raise OSError(errno.ENOPROTOOPT, f"a NIC has no option {control.option_name(*option)}")
        if request.stream:
            stream = self._stream(request.stream)
            if stream.group is not None and _OF_GROUPS.isdisjoint(changed):
                raise OSError(errno.EINVAL, "a stream of a group is the NIC's own, but for keepalive and timeout")
            if stream.records is not None and not {"tos", "codec"}.isdisjoint(changed):
                raise OSError(errno.EINVAL, "a stream in registered mode is tagged by records")
            stream.settings = dataclasses.replace(stream.settings, **changed)
            stream.apply(self._daemon.now())
        return control.Done()

    def _status(self, request: control.Status, _: int | None) -> control.StreamInfo:
        info = self._daemon.table.status(request.stream, self._daemon.now(), request.clear)
        if info is None:
            raise OSError(errno.EBADF, f"the NIC has no stream {request.stream}")
        return info

    def _stats(self, request: control.Stats, _: int | None) -> control.NicStats:
        table, now = self._daemon.table, self._daemon.now()
        numbers = sorted(number for number in table.streams if number > request.after)
        streams = [table.info(table.streams[number], now) for number in numbers[:PAGE]]
        more = len(numbers) > PAGE
        events = [] if request.after else self._daemon.event_log.events
        return control.NicStats(self._daemon.info, self._daemon.counters(), streams, more, events)

    def _capture(self, request: control.Capture, descriptor: int | None) -> control.Done:
        if descriptor is None:
            raise OSError(errno.EINVAL, "a capture needs a descriptor to write to")
        self._daemon.capture.start(
            descriptor,
            self._daemon.now(),
            host_interface=request.host_interface,
            wire_interface=request.wire_interface,
            snaplen=request.snaplen,
        )
        return control.Done()

    def _register(self, _: control.Register, descriptor: int | None) -> control.Registered:
        if descriptor is None:
            raise OSError(errno.EINVAL, "the region's descriptor is missing")
        number = self._daemon.regions.add(descriptor, self._client)
        os.close(descriptor)
        return control.Registered(number)

    def _unregister(self, request: control.Unregister, _: int | None) -> control.Done:
        self._daemon.regions.remove(request.region, self._client)
        return control.Done()

    def _use_records(self, request: control.UseRecords, _: int | None) -> control.Done:
        self._daemon.use_records(self._stream(request.stream))
        return control.Done()

    def _withdraw(self, request: control.Withdraw, _: int | None) -> control.Done:
        self._daemon.withdraw(self._stream(request.stream))
        return control.Done()

    def _add_peer(self, request: control.AddPeer, _: int | None) -> control.Done:
        host = text_of(address_of(request.host))
        self._daemon.add_peer(address_of(request.ip), (host, _port(request.port)))
        return control.Done()

    def _join(self, request: control.Join, descriptor: int | None) -> control.Done:
        if descriptor is None:
            raise OSError(errno.EINVAL, "the group socket is missing")
        end = socket.socket(fileno=descriptor)
        fits = (end.family, end.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET)
        end.detach()
        if not fits:
            raise OSError(errno.EINVAL, "a group socket is one end of a Unix pair of packets")
        numbers = [number for number in (*request.words, *request.data) if number]
        if len(request.words) != len(request.data) or len(set(numbers)) != len(numbers):
            raise OSError(errno.EINVAL, "a group has two streams to each rank")
        words, data = (
            [self._stream(number) if number else None for number in side] for side in (request.words, request.data)
        )
        try:
            self._daemon.join(descriptor, request.rank, words, data)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        return control.Done()


def _port(number: int) -> int:
    if not 0 <= number <= 0xFFFF:
        raise OSError(errno.EINVAL, f"{number} is no port")
    return number


def _codec(text: str) -> str:
    try:
        return str(codecs.get(text)) if text else ""
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None
