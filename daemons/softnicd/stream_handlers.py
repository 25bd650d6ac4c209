"""Stream handlers: the control requests of applications, for streams, regions and collectives (see handlers.py)."""

from __future__ import annotations

import dataclasses
import errno
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from typing import Any

from softnic import codecs
from softnic._native import lib
from softnic.ipc import control
from softnic.ipc.control import NIC_BLOCKS, NIC_CODEC, NIC_LANE, SOL_NIC
from softnic.packet import ipv4
from softnic.tcp.algorithms import ALGORITHMS
from softnicd.handlers import Handler, address_of, checked_port
from softnicd.queues import Queues
from softnicd.regions import Regions
from softnicd.stream_pump import StreamPump
from softnicd.stream_table import MAX_STREAMS
from softnicd.streams import Stream

_OPTIONS: dict[tuple[int, int], tuple[str, int, int]] = {
    (socket.IPPROTO_IP, socket.IP_TOS): ("tos", 0, 255),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): ("keepalive", 0, 2**31),
    (socket.SOL_SOCKET, socket.SO_REUSEADDR): ("reuse_address", 0, 2**31),
    (socket.SOL_SOCKET, socket.SO_REUSEPORT): ("reuse_port", 0, 2**31),
    (socket.SOL_SOCKET, socket.SO_LINGER): ("linger", 0, 2**31),
    (socket.IPPROTO_IP, socket.IP_TTL): ("ttl", 1, 255),
    (SOL_NIC, NIC_BLOCKS): ("blocks", 0, 1),
    (SOL_NIC, NIC_LANE): ("lane", -1, lib.SN_FLOW_LANES - 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY): ("nodelay", 0, 2**31),
    (socket.IPPROTO_TCP, socket.TCP_CORK): ("cork", 0, 2**31),
    (socket.IPPROTO_TCP, socket.TCP_QUICKACK): ("quickack", 0, 2**31),
    (socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT): ("defer_accept_s", 0, 2**31),
    (socket.IPPROTO_TCP, socket.TCP_MAXSEG): ("max_segment", 88, 32767),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): ("keepalive_idle_s", 1, 32767),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): ("keepalive_interval_s", 1, 32767),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): ("keepalive_count", 1, 127),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): ("user_timeout_ms", 0, 2**31),
    (socket.IPPROTO_TCP, socket.TCP_SYNCNT): ("syn_count", 1, 127),
    (socket.IPPROTO_TCP, socket.TCP_LINGER2): ("linger2_s", -(2**31), 2**31),
    (socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP): ("window_clamp", -(2**31), 2**31),
    (socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT): ("notsent_lowat", -(2**31), 2**31),
    (socket.IPPROTO_IP, control.IP_MTU_DISCOVER): ("mtu_discover", 0, 5),
    (socket.IPPROTO_IP, control.IP_RECVERR): ("receive_errors", -(2**31), 2**31),
}
"""The setting of each numeric option and its range, as in tcp(7)."""
_OFFLOADED_SETTINGS = frozenset(
    {
        "keepalive",
        "keepalive_idle_s",
        "keepalive_interval_s",
        "keepalive_count",
        "user_timeout_ms",
        "linger",
        "congestion",
    }
)
"""Settings that may change while a collective engine uses the stream."""


class StreamHandlers:
    """Answers requests for streams. `pid_of` returns the process id of a client."""

    def __init__(self, queues: Queues, regions: Regions, pid_of: Callable[[object], int]) -> None:
        self._queues = queues
        self._first = queues.first.streams
        self._regions = regions
        self._pid_of = pid_of
        self.by_request: dict[type, Handler] = {
            control.Open: self._open,
            control.Bind: self._bind,
            control.Listen: self._listen,
            control.Connect: self._connect,
            control.SetOption: self._set_option,
            control.QueryOption: self._query_option,
            control.QueryStream: self._status,
            control.Register: self._register,
            control.Unregister: self._unregister,
            control.Join: self._join,
            control.ConnectRank: self._connect_rank,
            control.StartRank: self._start_rank,
        }

    # -- opening -----------------------------------------------------------------------------------------------------

    def _open(self, request: control.Open, fd: int | None, client: object) -> control.Opened:
        stream = self._add(self._first, self._checked_fd(fd, self._first), client)
        stream.identity = request.inode, request.cookie
        return control.Opened(stream.number, ipv4.text(stream.ip), stream.port)

    def _bind(self, request: control.Bind, fd: int | None, client: object) -> control.Opened:
        address = self._own_address(request.address)
        with self._queues.held():
            if request.stream:
                stream = self._bind_open(request, fd)
            else:
                fd = self._checked_fd(fd, self._first)
                port = self._queues.reserve(checked_port(request.port), request.reuse, request.share)
                stream = self._add(self._first, fd, client)
                stream.port = port
        stream.ip = address
        return control.Opened(stream.number, ipv4.text(address), stream.port)

    def _bind_open(self, request: control.Bind, fd: int | None) -> Stream:
        """Binds an open stream, while all queues stand still."""
        if fd is not None:
            raise OSError(errno.EINVAL, "an open stream needs no file descriptor")
        with self._queues.held_with(request.stream) as (_, stream):
            if stream.port or stream.connection is not None:
                raise OSError(errno.EINVAL, "the stream is bound already")
            reuse = request.reuse or bool(stream.settings.reuse_address)
            share = request.share or bool(stream.settings.reuse_port)
            stream.port = self._queues.reserve(checked_port(request.port), reuse, share)
            return stream

    def _checked_fd(self, fd: int | None, streams: StreamPump) -> int:
        """Returns a file descriptor that a stream can use. Raises OSError (EINVAL, ENOTSOCK, ENOBUFS)."""
        if fd is None:
            raise OSError(errno.EINVAL, "the stream's file descriptor is missing")
        if streams.table.full:
            raise OSError(errno.ENOBUFS, f"the NIC has {MAX_STREAMS} streams already")
        if not _is_unix(fd, socket.SOCK_STREAM):
            raise OSError(errno.EINVAL, "a stream is one end of a Unix stream pair")
        return fd

    def _add(self, streams: StreamPump, fd: int, client: object) -> Stream:
        stream = streams.table.add(fd)
        stream.pid = self._pid_of(client)
        return stream

    def _own_address(self, text: str) -> int:
        address, own = address_of(text), self._first.host.ip
        if address not in (0, own) and not ipv4.is_loopback(address):
            raise OSError(errno.EADDRNOTAVAIL, f"{text} is not this NIC's address, which is {ipv4.text(own)}")
        return address

    def _listen(self, request: control.Listen, _fd: int | None, _client: object) -> control.Opened:
        with self._queues.held(), self._queues.held_with(request.stream) as (streams, stream):
            if stream.connection is not None or not stream.port:
                raise OSError(errno.EINVAL, "only a bound stream can listen")
            if not 0 <= request.backlog <= 0xFFFF:
                raise OSError(errno.EINVAL, "a backlog is from 0 to 65535")
            if not stream.listens:
                try:
                    streams.listen(stream, request.backlog)
                except OSError:
                    stream.discard_unsent()
                    raise
            for listener in stream.listeners:
                listener.set_backlog(request.backlog)
            return control.Opened(stream.number, ipv4.text(stream.ip), stream.port)

    def _connect(self, request: control.Connect, fd: int | None, client: object) -> control.Opened:
        target = address_of(request.address), request.port
        if not -1 <= request.lane < lib.SN_FLOW_LANES:
            raise OSError(errno.EINVAL, f"a lane is from 0 to {lib.SN_FLOW_LANES - 1}, or -1 for any")
        if not request.stream:
            self._check_target(request, 0)
            queue = self._queues.for_connection(0, target, request.lane)
            with queue.held():
                stream = self._add(queue.streams, self._checked_fd(fd, queue.streams), client)
                try:
                    return self._start(queue.streams, stream, target, request.lane)
                except OSError:
                    queue.streams.table.forget(stream)  # the file descriptor stays the caller's to close
                    raise
        if fd is not None:
            raise OSError(errno.EINVAL, "an open stream needs no file descriptor")
        with self._queues.held_with(request.stream) as (streams, stream):
            if stream.connection is not None or stream.listens:
                raise OSError(errno.EISCONN, "the stream is in use")
            try:
                self._check_target(request, stream.ip)
                queue = self._queues.for_connection(stream.port, target, request.lane)
                with queue.held():
                    if queue.streams is not streams:
                        streams.move(stream, queue.streams)
                    return self._start(queue.streams, stream, target, request.lane)
            except OSError:
                stream.discard_unsent()
                raise

    def _start(self, streams: StreamPump, stream: Stream, target: tuple[int, int], lane: int) -> control.Opened:
        stream.settings = dataclasses.replace(stream.settings, lane=lane)
        streams.connect(stream, target)
        assert stream.connection is not None
        address, port = stream.connection.local
        if stream.loopback is not None:
            address = stream.loopback[0]
        return control.Opened(stream.number, ipv4.text(address), port)

    def _check_target(self, request: control.Connect, bound: int) -> None:
        """Raises OSError for what cannot be the address of one host, or cannot be reached from the address `bound`."""
        address, port = address_of(request.address), checked_port(request.port)
        if ipv4.is_loopback(bound) and not ipv4.is_loopback(address) and address != self._first.host.ip:
            raise OSError(errno.EINVAL, f"a socket bound to {ipv4.text(bound)} reaches only its own node")
        if not address or not port:
            number = errno.ECONNREFUSED if address else errno.EADDRNOTAVAIL
            raise OSError(number, f"nothing can listen at {request.address}:{port}")
        if not ipv4.is_host(address) and not ipv4.is_loopback(address):
            raise OSError(
                errno.EHOSTUNREACH, f"no route to {request.address}:{port}: it is not the address of one host"
            )

    # -- options and state -------------------------------------------------------------------------------------------

    def _set_option(self, request: control.SetOption, _fd: int | None, _client: object) -> control.Done:
        changed = _changed_settings((request.level, request.name), request.value)
        if request.stream:
            with self._queues.held_with(request.stream) as (streams, stream):
                if stream.offloaded and _OFFLOADED_SETTINGS.isdisjoint(changed):
                    raise OSError(errno.EINVAL, "the stream is the NIC's own: only timeouts can be set")
                stream.settings = dataclasses.replace(stream.settings, **changed)
                stream.apply(streams.now())
        return control.Done()

    def _query_option(self, request: control.QueryOption, _fd: int | None, _client: object) -> control.OptionValue:
        settings = self._queues.settings(request.stream)
        option = (request.level, request.name)
        if option == (SOL_NIC, NIC_CODEC):
            return control.OptionValue(settings.codec)
        if option == (socket.IPPROTO_TCP, socket.TCP_CONGESTION):
            return control.OptionValue(settings.congestion or self._first.host.tcp.config.congestion)
        if option not in _OPTIONS:
            raise OSError(errno.ENOPROTOOPT, f"a NIC has no option {control.option_name(*option)}")
        return control.OptionValue(getattr(settings, _OPTIONS[option][0]))

    def _status(self, request: control.QueryStream, _fd: int | None, _client: object) -> control.StreamInfo:
        queue = self._queues.with_stream(request.stream)
        with queue.held():
            info = queue.streams.table.status(request.stream, queue.streams.now(), request.clear)
        if info is None:
            raise OSError(errno.EBADF, f"the NIC has no stream {request.stream}")
        return info

    # -- regions and collectives -------------------------------------------------------------------------------------

    def _register(self, _: control.Register, fd: int | None, client: object) -> control.Registered:
        if fd is None:
            raise OSError(errno.EINVAL, "the region's file descriptor is missing")
        number = self._regions.add(fd, client)
        os.close(fd)
        return control.Registered(number)

    def _unregister(self, request: control.Unregister, _fd: int | None, client: object) -> control.Done:
        self._regions.remove(request.region, client)
        return control.Done()

    def _join(self, request: control.Join, fd: int | None, _client: object) -> control.Done:
        if fd is None:
            raise OSError(errno.EINVAL, "the work queue's socket is missing")
        if not _is_unix(fd, socket.SOCK_SEQPACKET):
            raise OSError(errno.EINVAL, "a work queue's socket is one end of a Unix pair of packets")
        sides = [request.control, request.data, *filter(None, (request.messages, request.compressed))]
        given = [*sides, *filter(None, (request.process,))]
        numbers = [number for side in given for number in side if number]
        if len(sides) == 3 or len(set(map(len, given))) > 1 or len(set(numbers)) != len(numbers):
            raise OSError(errno.EINVAL, "a communicator has two streams to each rank, or four")
        connected = list(map(bool, sides[0]))
        for side in chain.from_iterable(request.lanes):
            if list(map(bool, side)) != connected:
                raise OSError(errno.EINVAL, "a further lane has two streams to each rank")
        with ExitStack() as stack:
            streams, found = stack.enter_context(self._queues.held_with_all(numbers))
            own = [[found.get(number) for number in side] for side in given]
            lanes = [self._lane(stack, lane) for lane in request.lanes]
            if len({streams, *(other for other, _ in lanes)}) <= len(lanes):
                raise OSError(errno.EINVAL, "the lanes of a communicator are on one queue each")
            try:
                streams.join(fd, request.rank, own[: len(sides)], own[len(sides)] if request.process else (), lanes)
            except ValueError as error:
                raise OSError(errno.EINVAL, str(error)) from None
        return control.Done()

    def _connect_rank(self, request: control.ConnectRank, _fd: int | None, _client: object) -> control.Done:
        numbers = [request.beside, *request.streams, *filter(None, (request.process,))]
        if len(set(numbers)) != len(numbers):
            raise OSError(errno.EINVAL, "a stream is named twice")
        with ExitStack() as stack:
            streams, found = stack.enter_context(self._queues.held_with_all(numbers))
            lanes = [
                (pump, [s for (s,) in theirs if s])
                for pump, theirs in (self._lane(stack, ([words], [data])) for words, data in request.lanes)
            ]
            own = [found[number] for number in request.streams]
            try:
                streams.connect_rank(found[request.beside], request.rank, own, found.get(request.process), lanes)
            except ValueError as error:
                raise OSError(errno.EINVAL, str(error)) from None
        return control.Done()

    def _start_rank(self, request: control.StartRank, _fd: int | None, _client: object) -> control.Done:
        with self._queues.held_with_all([request.stream]) as (streams, found):
            try:
                streams.start_rank(found[request.stream])
            except ValueError as error:
                raise OSError(errno.EINVAL, str(error)) from None
        return control.Done()

    def _lane(
        self, stack: ExitStack, lane: tuple[list[int], list[int]]
    ) -> tuple[StreamPump, list[list[Stream | None]]]:
        """Have the queue of a lane stand still. Return it, and the lane's streams."""
        streams, found = stack.enter_context(
            self._queues.held_with_all([number for side in lane for number in side if number])
        )
        return streams, [[found.get(number) for number in side] for side in lane]


def _is_unix(fd: int, kind: int) -> bool:
    """Whether a file descriptor is a Unix socket of this type. Raises OSError (ENOTSOCK)."""
    end = socket.socket(fileno=fd)
    try:
        return (end.family, end.type) == (socket.AF_UNIX, kind)
    finally:
        end.detach()


def _changed_settings(option: tuple[int, int], value: int | str) -> dict[str, Any]:
    """The setting of a socket option as a field of `Settings`. Raises OSError (EINVAL, ENOENT, ENOPROTOOPT)."""
    if option == (SOL_NIC, NIC_CODEC):
        if not isinstance(value, str):
            raise OSError(errno.EINVAL, "a codec is a text, as in bounded:10")
        try:
            return {"codec": str(codecs.get(value)) if value else ""}
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None
    if option == (socket.IPPROTO_TCP, socket.TCP_CONGESTION):
        if value not in ALGORITHMS:
            raise OSError(errno.ENOENT, f"{value!r} is not one of the algorithms {', '.join(ALGORITHMS)}")
        return {"congestion": value}
    if option not in _OPTIONS:
        raise OSError(errno.ENOPROTOOPT, f"a NIC has no option {control.option_name(*option)}")
    name, least, most = _OPTIONS[option]
    if not isinstance(value, int) or not least <= value <= most:
        raise OSError(errno.EINVAL, f"{name} is a number from {least} to {most}, not {value!r}")
    return {name: control.as_kept(*option, value)}
