"""Moves the bytes of one communicator: everything that waits, waits in `Progress.run`.

Strategy. All connections are non-blocking and one thread moves all of them, inside calls only: it polls, reads what
is wanted, and writes what a socket takes. CONTROL connections are always read; the frames on them say what the data
connections bring.

What ends a call with a CommError: a connection that closes before its owner said Leave, an error of a socket, an
Abort from another rank, and whatever the call's own `done` raises. A rank that is gone may have done its part of the
call, and ended without a word (os._exit): so the call has GONE_S left where nothing of that rank is missing.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from softnic.comm import messages
from softnic.comm.channel import BROKEN, Channel, Mesh, Peer
from softnic.comm.errors import CommError
from softnic.comm.heartbeat import EVERY_S, Pulse
from softnic.comm.registered import is_worth_it
from softnic.comm.transport import TAG, Transport

GONE_S = 2.0
"""For the call that goes on when a rank is gone; the 5 s of the contract are less what it took to notice."""
LAST_WORDS_S = 0.5
"""When a data connection breaks: the time for its rank, or others, to say why."""
_ENDED = {errno.ECONNRESET, errno.EPIPE}
"""What the end of a rank's process looks like; its data may still come. Anything else is a NIC or a network."""


class Listener(Protocol):
    """Who makes sense of frames."""

    def head(self, peer: Peer) -> None:
        """`peer.heads` has grown."""

    def announced(self, peer: Peer, announce: messages.Announce) -> None:
        """A message is about to come on one of the peer's channels."""


class Progress:
    """The connections of rank `rank` to all others, and the loop."""

    def __init__(self, rank: int, connections: Mesh, transport: Transport | None) -> None:
        self.rank = rank
        self._transport = transport
        self.peers = {other: Peer(other, sockets) for other, sockets in connections.items()}
        self.listener: Listener | None = None
        self._poll = select.poll()
        self._owners: dict[int, Peer | Channel] = {}
        self._deadline = 0.0
        """When a call must be over, once a rank is gone; 0: none is."""
        self.pulse: Pulse | None = None
        """Of this rank's NIC, to be closed with the connections."""
        self._deaf = False
        """That NIC answers nothing any more."""
        for peer in self.peers.values():
            peer.mask = select.POLLIN
            assert transport is not None
            transport.keep_alive(peer.control)
            transport.tag(peer.channel(True).connection)
            self._register(peer.control, peer, peer.mask)

    def _register(self, connection: socket.socket, owner: Peer | Channel, mask: int) -> None:
        self._owners[connection.fileno()] = owner
        self._poll.register(connection, mask)

    def _unregister(self, connection: socket.socket) -> None:
        if self._owners.pop(connection.fileno(), None) is not None:
            self._poll.unregister(connection)

    def run(self, done: Callable[[], bool]) -> None:
        """Moves bytes until `done`. Raises CommError, and what `done` raises."""
        while True:
            broken = self._arm()  # comes first: it may move the last bytes itself, and nothing else would happen then
            if done() and not any(peer.unsent for peer in self.peers.values()):
                return
            if broken is not None:
                self._last_words(broken)
            ready = self._poll.poll(self._time_left())
            self._feel(bool(ready))
            # CONTROL first: an Abort says more than the connections that close after it.
            late = []
            for descriptor, events in ready:
                owner = self._owners.get(descriptor)
                if isinstance(owner, Peer):
                    self._control(owner, events)
                elif owner is not None:
                    late.append((owner, events))
            for channel, events in late:
                self._data(channel, events)

    def watch(self, descriptor: int, events: int) -> None:
        """From now on `run` asks `done` whenever this is ready, too."""
        self._poll.register(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)

    def _feel(self, heard: bool) -> None:
        """Raises CommError where this rank's own NIC does not answer any more."""
        if self.pulse is None:
            return
        try:
            if heard:
                self.pulse.heard(time.monotonic())
            else:
                self.pulse.beat(time.monotonic())
        except OSError as error:
            self._deaf = True
            raise CommError(f"rank {self.rank} lost its NIC: {error.strerror}", rank=self.rank) from error

    def _time_left(self) -> float | None:
        """Milliseconds to wait for something to happen. Raises CommError when a rank has been gone for too long."""
        beat_s = None if self.pulse is None else EVERY_S
        if not self._deadline:
            return None if beat_s is None else beat_s * 1000
        if (left := self._deadline - time.monotonic()) > 0:
            return min(left, beat_s or left) * 1000 + 1
        peer = next(peer for peer in self.peers.values() if peer.gone)
        raise self.lost(peer, peer.gone)

    def _arm(self) -> Channel | None:
        """Polls for what is wanted now. Returns a channel that broke, if there is one."""
        for peer in self.peers.values():
            for channel in peer.channels:
                mask = channel.wants()
                if mask and channel.ended:
                    return channel
                if mask != channel.mask and (mask or channel.mask > 0):
                    self._register(channel.connection, channel, mask)
                    channel.mask = mask
            if (mask := peer.wants()) != peer.mask and peer.control.fileno() in self._owners:
                self._poll.modify(peer.control, mask)
                peer.mask = mask
        return None

    def _last_words(self, broken: Channel) -> None:
        """Raises the reason why a channel broke: what the other ranks say about it soon, or that it did."""
        poll = select.poll()
        for peer in self.peers.values():
            if peer.control.fileno() in self._owners:
                poll.register(peer.control, select.POLLIN)
        until = time.monotonic() + LAST_WORDS_S
        while (left := until - time.monotonic()) > 0 and (ready := poll.poll(left * 1000)):
            for descriptor, events in ready:
                owner = self._owners.get(descriptor)
                if isinstance(owner, Peer):
                    self._control(owner, events)
                else:
                    poll.unregister(descriptor)
        raise self.lost(broken.peer, broken.peer.gone or broken.ended or "")

    def listen(self) -> None:
        """Reads what other ranks have said by now. Raises CommError where that ends the communicator."""
        for descriptor, events in self._poll.poll(0):
            owner = self._owners.get(descriptor)
            if isinstance(owner, Peer):
                self._control(owner, events)

    def missing(self, peer: Peer, what: str) -> CommError:
        """The error for something that an absent rank did not do."""
        if peer.gone:
            return self.lost(peer, peer.gone)
        none = ": it made no collective call" if peer.left == 0 else ""
        why = f": {peer.why}" if peer.why else none
        return CommError(f"rank {peer.rank} has left without {what}{why}", rank=peer.rank)

    def lost(self, peer: Peer, why: str | OSError) -> CommError:
        """The error for a connection that is no more. Without its own NIC a rank knows nothing about the others; but a
        NIC that stood still has brought about resets, and no end in good order as a process makes when it dies."""
        if isinstance(why, OSError):
            if self.pulse is not None and self.pulse.stood_still(time.monotonic()):
                return CommError(f"rank {self.rank} lost its NIC: it stood still", rank=self.rank)
            if why.errno == errno.ENETDOWN:
                return CommError(f"rank {self.rank} lost its NIC: {why.strerror}", rank=self.rank)
            why = why.strerror or str(why)
        return CommError(f"rank {peer.rank} is gone: {why}", rank=peer.rank)

    def use_codec(self, channel: Channel, codec: str) -> None:
        """For what is queued on a TAGGED channel from now on; nothing else is, between calls."""
        if channel.codec != codec and self._transport is not None:
            if channel.direct is not None:
                channel.direct.tag(TAG, codec)
            else:
                self._transport.set_codec(channel.connection, codec)
            channel.codec = codec

    def use_registered(self, channel: Channel, data: memoryview) -> None:
        """Has a channel's NIC use registered memory itself, from the first message on that lies in such.

        Raises OSError where the NIC does not answer. If it refuses, the connection has an error of its own to tell.
        """
        if channel.direct is None and self._transport is not None and is_worth_it(data):
            try:
                channel.direct = self._transport.direct(channel.connection)
            except OSError as error:
                if error.errno == errno.ENETDOWN:
                    raise

    # -- data ------------------------------------------------------------------------------------------------------

    def _data(self, channel: Channel, events: int) -> None:
        try:
            channel.handle(events)
        except BlockingIOError:
            pass
        except OSError as error:
            channel.ended = error
            self._silence(channel)
        else:
            if events & BROKEN and not channel.wants():
                self._silence(channel)  # it may have left in order, and would wake every poll

    def _silence(self, channel: Channel) -> None:
        """Polls it no more, until something is wanted of it."""
        self._unregister(channel.connection)
        channel.mask = -1

    # -- control ---------------------------------------------------------------------------------------------------

    def post(self, peer: Peer, frame: messages.Frame) -> None:
        """Queues a frame and sends what the connection takes at once. To who left, nothing."""
        if not peer.absent:
            peer.unsent += messages.pack(frame)
            self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        try:
            if peer.unsent:
                del peer.unsent[: peer.control.send(peer.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            peer.unsent.clear()  # reading tells what happened: the last words of who closed are still to come

    def _control(self, peer: Peer, events: int) -> None:
        if events & select.POLLOUT:
            self._flush(peer)
        if not events & (select.POLLIN | BROKEN):
            return
        try:
            data = peer.control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._closed(peer, error)
            return
        if not data:
            self._closed(peer, "it closed the connection without a word")
            return
        try:
            for frame in peer.reader.feed(data):
                self._frame(peer, frame)
        except ValueError as error:
            if isinstance(error, CommError):
                raise
            raise CommError(f"rank {peer.rank} sent nonsense: {error}", rank=peer.rank) from error

    def _closed(self, peer: Peer, why: str | OSError) -> None:
        self._unregister(peer.control)
        peer.unsent.clear()
        if peer.left is None:
            peer.gone = why
            self._deadline = self._deadline or time.monotonic() + GONE_S
            if isinstance(why, OSError) and why.errno not in _ENDED:
                raise self.lost(peer, why)

    def _frame(self, peer: Peer, frame: messages.Frame) -> None:
        assert self.listener is not None
        match frame:
            case messages.Head():
                peer.heads.append(frame)
                self.listener.head(peer)
            case messages.Announce():
                self.listener.announced(peer, frame)
            case messages.Abort():
                at_fault = frame.rank if frame.rank >= 0 else None
                raise CommError(f"rank {peer.rank} says: {frame.text}", rank=at_fault, told=frame.text)
            case messages.Leave():
                peer.left, peer.why = frame.number, frame.why
            case messages.Joined():
                peer.joined = True
            case messages.Hello():
                raise ValueError("a Hello in the middle")

    # -- the end ---------------------------------------------------------------------------------------------------

    def farewell(self, frame: messages.Frame, wait_s: float) -> None:
        """Tells everyone, for at most `wait_s` where a connection is full, and sends nothing more."""
        for peer in self.peers.values():
            if peer.absent:
                continue
            peer.unsent += messages.pack(frame)
            poll = select.poll()
            poll.register(peer.control, select.POLLOUT)
            self._flush(peer)
            while peer.unsent and poll.poll(wait_s * 1000):
                self._flush(peer)

    def hang_up(self) -> None:
        """Ends every connection's way out; what was sent still arrives. Reading goes on until `close`.

        But registered memory is the caller's again at once: what a NIC was still to send of it does not arrive.
        """
        if not self._deaf:
            self._withdraw()
        for peer in self.peers.values():
            for connection in (peer.control, *(channel.connection for channel in peer.channels)):
                with suppress(OSError):  # it is gone already
                    connection.shutdown(socket.SHUT_WR)

    def _withdraw(self) -> None:
        for peer in self.peers.values():
            for channel in peer.channels:
                if channel.direct is not None and channel.direct.pending and self._transport is not None:
                    try:
                        self._transport.withdraw(channel.connection)
                    except OSError as error:  # the stream is gone, or the NIC, which would not answer for others either
                        if error.errno == errno.ENETDOWN:
                            return

    def close(self) -> None:
        if self.pulse is not None:
            self.pulse.close()
        for peer in self.peers.values():
            for connection in (peer.control, *(channel.connection for channel in peer.channels)):
                connection.close()
