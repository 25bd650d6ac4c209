"""Runs agreements (agreement.py) among the ranks of a communicator, whether that still works or has ended.

Each rank listens at its address for as long as it has the communicator (mesh.py). For an agreement every rank connects
to every other one by a connection on which only it sends: Hello, Enter, and the frames of the agreement. So the calls
of an ended communicator, whose own connections may be cut in the middle of a frame, do not matter, and each agreement
has connections of its own. Those of the next one that arrive early are kept for it.

A refused connection proves that the process has ended. When an established one closes, the rank is called again: a
process that is about to end may still be called once, and its connection closes again.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from softnic.collectives import framing
from softnic.comm import messages
from softnic.comm.bootstrap.greeting import FirstFrame, Greeting, receive_first
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.bootstrap.mesh import SPARE_CONNECTIONS
from softnic.comm.errors import CommError
from softnic.comm.survival import votes
from softnic.comm.survival.agreement import Agreement, RankReach
from softnic.comm.survival.votes import Decision, Enter, Vote
from softnic.comm.transport import Transport
from softnic.terminal import printable

SILENT_S = 3.0
"""A rank that takes no connection for this long is silent."""
_SUSPECT_S = 1.0
"""The same for one whose silence has ended the communicator."""
_CALL_AGAIN_S = 0.1
_ALIVE_S = 1.0
"""A process that keeps a new connection for this long after it has closed one lives."""
_COORDINATOR_S = 5.0
"""How long ranks wait for their coordinator after it should have given up those that it waits for."""
_LAST_WORDS_S = 1.0
"""How long the end of an agreement tries to send its last frames."""
_STEP_S = 0.05
_READ_BYTES = 1 << 16
_BROKEN = select.POLLHUP | select.POLLERR | select.POLLNVAL


@dataclass
class _Outgoing:
    """What goes to one rank."""

    connection: socket.socket | None = None
    """None: none is wanted, or not yet."""
    began: float = 0.0
    is_open: bool = False
    was_open: bool = False
    """An earlier connection had been established: this one asks whether the process lives."""
    call_at: float = 0.0
    """When to connect again; infinite: never."""
    unsent: bytearray = field(default_factory=bytearray)


@dataclass
class HeardRank:
    """A connection of another rank, which has said Hello."""

    rank: int
    connection: socket.socket
    reader: framing.FrameReader[votes.Frame] = field(default_factory=votes.reader)
    number: int = 0
    """Of its agreement; 0: not known yet."""
    early: list[votes.Frame] = field(default_factory=list)
    """Frames that have arrived before this rank had begun that agreement."""


class Regroup:
    """The agreements of one communicator, as one of its ranks has them.

    Parameters
    ----------
    launch
        The ranks, and where they listen.
    transport
        Makes the connections.
    listener
        This rank's.
    called
        Returns connections that others of the listener's users have accepted for this, each with its Hello.
    check_nic
        Raises CommError if this rank's own NIC is gone.
    """

    def __init__(
        self,
        launch: Launch,
        transport: Transport,
        listener: socket.socket,
        called: Callable[[], Iterable[tuple[int, socket.socket]]],
        check_nic: Callable[[], None],
    ) -> None:
        self._launch = launch
        self._greeting = Greeting(launch)
        self._transport = transport
        self._listener = listener
        self._called = called
        self._check_nic = check_nic
        self._number = 0
        """Of the last agreement."""
        self._out: dict[int, _Outgoing] = {}
        self._in: dict[int, HeardRank] = {}
        """By file descriptor."""
        self._strangers: dict[int, tuple[socket.socket, FirstFrame]] = {}
        """Accepted connections that have not said Hello. Some may be of the next agreement."""
        self._agreement = Agreement(launch.rank, launch.size, _nothing(), "")
        self._suspects: frozenset[int] = frozenset()

    def agree(self, vote: Vote, suspects: Iterable[int] = ()) -> Decision:
        """Return what the ranks that are left have agreed on.

        Parameters
        ----------
        vote
            What this rank brings.
        suspects
            Ranks that have been silent.

        Raises
        ------
        CommError
            If too few ranks are left, they make different calls, or they go on without this one.
        """
        launch = self._launch
        self._number += 1
        self._suspects = frozenset(suspects)
        self._agreement = agreement = Agreement(launch.rank, launch.size, vote, os.urandom(8).hex())
        self._out = {rank: _Outgoing() for rank in range(launch.size) if rank != launch.rank}
        until = time.monotonic() + launch.timeout_s
        try:
            for incoming in list(self._in.values()):
                self._take_early(incoming)
            agreement.begin()
            while agreement.end is None:
                self._check_nic()
                self._step(agreement, _STEP_S)
                until = self._give_up(agreement, until)
            self._send_rest(agreement)
        finally:
            self._close_agreement()
        if agreement.end.decision is None:
            text = printable(agreement.end.refused, "\n")
            raise CommError(f"no agreement: {text}", rank=launch.rank)
        return agreement.end.decision

    def close(self) -> None:
        """Close all connections. The listener is the caller's."""
        self._close_agreement()
        for connection in (
            *(each.connection for each in self._in.values()),
            *(each for each, _ in self._strangers.values()),
        ):
            connection.close()
        self._in.clear()
        self._strangers.clear()

    # -- one step ----------------------------------------------------------------------------------------------------

    def _step(self, agreement: Agreement, wait_s: float) -> None:
        now = time.monotonic()
        for rank, connection in self._called():
            self._in[connection.fileno()] = HeardRank(rank, connection)
        for rank, out in self._out.items():
            if out.connection is None and now >= out.call_at:
                self._call(rank, out, now)
        self._send(agreement)
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        by_fd: dict[int, int] = {}
        for rank, out in self._out.items():
            if out.connection is not None:
                by_fd[out.connection.fileno()] = rank
                wants = select.POLLOUT if out.unsent or not out.is_open else 0
                poll.register(out.connection, wants | select.POLLRDHUP)
        for fd in (*self._in, *self._strangers):
            poll.register(fd, select.POLLIN)
        for fd, events in poll.poll(wait_s * 1000):
            if fd == self._listener.fileno():
                self._accept()
            elif fd in by_fd:
                self._handle_out(by_fd[fd], events)
            elif fd in self._strangers:
                self._greet(fd)
            elif fd in self._in:
                self._read(self._in[fd])
        self._look_at_time(agreement, time.monotonic())
        self._send(agreement)

    def _send(self, agreement: Agreement) -> None:
        for rank, frame in agreement.pending():
            if not self._out[rank].was_open:
                self._out[rank].unsent += framing.pack(frame)
        for out in self._out.values():
            if out.is_open and out.unsent and out.connection is not None:
                try:
                    del out.unsent[: out.connection.send(out.unsent)]
                except BlockingIOError:
                    continue
                except OSError:
                    self._closed(out)

    def _send_rest(self, agreement: Agreement) -> None:
        """Send the last frames, as far as the connections take them in time."""
        until = time.monotonic() + _LAST_WORDS_S
        self._send(agreement)
        while time.monotonic() < until and any(out.unsent and out.is_open for out in self._out.values()):
            time.sleep(1e-3)
            self._send(agreement)

    def _give_up(self, agreement: Agreement, until: float) -> float:
        """Give up ranks that are waited for too long. Return the next time to do so."""
        now = time.monotonic()
        coordinates = agreement.coordinator == self._launch.rank
        if now < until + (0.0 if coordinates else _COORDINATOR_S):
            return until
        for rank in agreement.waits_for:
            agreement.lost(rank, dead=False)
        return now + _COORDINATOR_S

    # -- outgoing ----------------------------------------------------------------------------------------------------

    def _call(self, rank: int, out: _Outgoing, now: float) -> None:
        out.began, out.is_open = now, False
        try:
            out.connection = self._transport.connect(self._launch.addresses[rank])
        except OSError as error:
            self._failed(rank, out, error.errno)

    def _handle_out(self, rank: int, events: int) -> None:
        out = self._out[rank]
        if out.connection is None:
            return
        error = out.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not out.is_open and error:
            self._failed(rank, out, error)
        elif error or events & (_BROKEN | select.POLLRDHUP):
            self._closed(out)
        elif not out.is_open:
            out.is_open = True
            if not out.was_open:
                self._transport.keep_alive(out.connection)
                hello = self._greeting.hello(rank, messages.SURVIVE)
                out.unsent[:0] = hello + framing.pack(Enter(self._number))
                self._agreement.reached(rank)

    def _closed(self, out: _Outgoing) -> None:
        """Ask by a new connection whether the process has ended."""
        assert out.connection is not None
        out.connection.close()
        out.connection, out.is_open, out.was_open = None, False, True
        out.unsent.clear()
        out.call_at = time.monotonic() + _CALL_AGAIN_S

    def _failed(self, rank: int, out: _Outgoing, error: int | None) -> None:
        if out.connection is not None:
            out.connection.close()
        out.connection, out.is_open, out.call_at = None, False, float("inf")
        self._agreement.lost(rank, dead=error == errno.ECONNREFUSED)

    def _look_at_time(self, agreement: Agreement, now: float) -> None:
        """Notice silence, and ranks that live though they have closed a connection."""
        for rank, out in self._out.items():
            if out.connection is None:
                continue
            if not out.is_open and now - out.began >= (_SUSPECT_S if rank in self._suspects else SILENT_S):
                self._failed(rank, out, errno.ETIMEDOUT)
            elif out.is_open and out.was_open and now - out.began >= _ALIVE_S:
                if agreement.reach[rank] is RankReach.REACHED:
                    agreement.lost(rank, dead=False)
                out.connection.close()
                out.connection, out.is_open, out.call_at = None, False, float("inf")

    # -- incoming ----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):
            connection, _ = self._listener.accept()
            self._transport.prepare(connection)
            if len(self._strangers) >= SPARE_CONNECTIONS + self._launch.size:
                self._strangers.pop(next(iter(self._strangers)))[0].close()
            handshake = receive_first(connection)
            next(handshake)
            self._strangers[connection.fileno()] = connection, handshake

    def _greet(self, fd: int) -> None:
        """Read the Hello of a connection. Closes it if it is not one of this communicator's ranks."""
        connection, handshake = self._strangers[fd]
        try:
            next(handshake)
        except StopIteration as end:
            del self._strangers[fd]
            hello = end.value
            if isinstance(hello, messages.Hello) and self._is_rank(hello):
                self._in[fd] = HeardRank(hello.rank, connection)
                return
            connection.close()
        except OSError:
            del self._strangers[fd]
            connection.close()

    def _is_rank(self, hello: messages.Hello) -> bool:
        try:
            self._greeting.check(hello, self._out)
        except CommError:
            return False
        return hello.channel == messages.SURVIVE and not self._greeting.wrong(hello)

    def _read(self, incoming: HeardRank) -> None:
        try:
            data = incoming.connection.recv(_READ_BYTES)
            frames = list(incoming.reader.feed(data)) if data else []
        except BlockingIOError:
            return
        except (OSError, ValueError):
            data, frames = b"", []
        for frame in frames:
            self._on_frame(incoming, frame)
        if not data and (incoming.number <= self._number or not incoming.early):
            self._drop(incoming)

    def _on_frame(self, incoming: HeardRank, frame: votes.Frame) -> None:
        if not incoming.number:
            incoming.number = frame.number if isinstance(frame, Enter) else -1
        elif incoming.number > self._number:
            incoming.early.append(frame)
        elif incoming.number == self._number:
            with suppress(ValueError):  # of a rank that is none of this version
                self._agreement.receive(incoming.rank, frame)

    def _take_early(self, incoming: HeardRank) -> None:
        if incoming.number == self._number:
            early, incoming.early = incoming.early, []
            for frame in early:
                self._on_frame(incoming, frame)

    def _drop(self, incoming: HeardRank) -> None:
        self._in.pop(incoming.connection.fileno(), None)
        incoming.connection.close()

    def _close_agreement(self) -> None:
        for out in self._out.values():
            if out.connection is not None:
                out.connection.close()
        self._out = {}
        for incoming in [each for each in self._in.values() if 0 < each.number <= self._number or each.number < 0]:
            self._drop(incoming)


def _nothing() -> Vote:
    return Vote("", 0, [], ("", 0))
