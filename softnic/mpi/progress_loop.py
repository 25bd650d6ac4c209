"""One thread that waits for many requests and messages of a communicator at a time.

A blocking call waits for one thing and holds the communicator meanwhile. A ProgressLoop waits for everything at once:
collectives that NICs execute, messages in both directions, and a Waker by which other threads announce new work.

    loop = ProgressLoop(comm)
    loop.run("training", turn)       # in the one thread that makes this communicator's calls
    loop.wake()                      # in any other

Receives match messages as in p2p/calls.py.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from softnic.collectives.elements import Array, name_of, raw
from softnic.comm import messages
from softnic.comm.arrivals import Arrival, PendingRecv
from softnic.comm.connections import CommConnections, Traffic
from softnic.comm.errors import CommError
from softnic.comm.matching import Matcher
from softnic.comm.waiting import Waker
from softnic.comm.zerocopy_channel import SendOp
from softnic.mpi.arguments.message_target import ExactTarget
from softnic.mpi.communicator import Communicator


class Sending:
    """A message being sent. Its memory is in use until it is complete."""

    def __init__(self, matcher: Matcher, dest: int, tag: int, array: Array) -> None:
        self._matcher = matcher
        self._dest = dest
        announce = messages.Announce(tag, array.nbytes, name_of(array.dtype))
        self._transfer: SendOp = matcher.begin_send(dest, announce, raw(array))

    @property
    def is_complete(self) -> bool:
        """Raises CommError if it never will be."""
        return self._matcher.sent(self._dest, self._transfer)


class Receiving:
    """A message being received. `place` returns its memory, or raises ArgumentError if it does not fit."""

    def __init__(self, matcher: Matcher, source: int, tag: int, place: Callable[[Arrival], memoryview]) -> None:
        self._matcher = matcher
        self._receive = PendingRecv(source, tag, place)
        matcher.begin_receive(self._receive)

    @property
    def is_complete(self) -> bool:
        """Raises CommError if it never will be."""
        if not self._matcher.arrived(self._receive):
            return False
        if self._receive.misfit is not None:
            raise self._receive.misfit
        return True

    @property
    def source(self) -> int:
        """The sender, once it is complete."""
        assert self._receive.message is not None
        return self._receive.message.source


class ProgressLoop:
    """The loop of one communicator, run by one thread at a time."""

    def __init__(self, comm: Communicator) -> None:
        self._state = comm._state
        self._waker = Waker()
        self._connections: CommConnections | None = None

    def wake(self) -> None:
        """Have `run` call its `turn` again, or `wait_for_wake` return. Thread-safe."""
        self._waker.wake()

    def close(self) -> None:
        """Release the Waker; called by the thread that ran the loop. `wake` has no effect from then on."""
        self._waker.close()

    def abort(self, text: str) -> None:
        """End the communicator on all ranks. Not while `run` runs."""
        self._state.abort(text)

    def nic_addresses(self) -> list[str]:
        """Return the address of each rank's NIC, once the ranks are connected."""
        return [address for address, _ in self._state.launch.addresses]

    def why_stuck(self) -> str:
        """Return what the calls in progress wait for (softnic/diagnosis). Takes a fraction of a second."""
        from softnic.diagnosis.explanation import why_stuck  # only for what is stuck

        connections = self._state.connections
        return why_stuck(connections.nic) if connections is not None and connections.nic else ""

    def traffic(self) -> Traffic:
        """Return what was sent so far; nothing if the connections are closed. In any thread. Raises OSError."""
        connections = self._state.connections
        return Traffic() if connections is None else connections.traffic()

    def wait_for_wake(self, limit_s: float) -> None:
        """Wait until `wake` is called, or for `limit_s`, while nothing is in progress."""
        poll = select.poll()
        poll.register(self._waker.fd, select.POLLIN)
        if poll.poll(limit_s * 1000):
            self._waker.clear()

    def failure(self, name: str) -> str:
        """Return why another rank or a NIC has ended the communicator, from what has arrived; empty: none has.

        In any thread. With a request in progress, that reports it, and nothing is done here. `name` as in `run`.
        """
        connections = self._state.connections
        queue = None if connections is None else connections.queue
        if queue is None or queue.pending is not None:
            return ""
        try:
            with self._state.call(name, refusable=False) as connections:
                queue.advance()
                connections.progress.turn()
                for peer in connections.progress.peers.values():
                    if peer.gone:
                        raise connections.progress.lost(peer, peer.gone)
        except CommError as error:
            return str(error)
        return ""

    def run(self, name: str, turn: Callable[[], bool]) -> None:
        """Call `turn`, which may start and check anything, whenever something has happened, until it returns True.

        Every error ends the communicator; `name` stands for the call in its text.
        """
        with self._state.call(name, refusable=False) as connections:
            self._connections = connections
            connections.progress.waiter.register(self._waker.fd)

            def done() -> bool:
                self._waker.clear()
                return turn()

            try:
                connections.progress.run(done)
            finally:
                connections.progress.waiter.unregister(self._waker.fd)

    def send(self, dest: int, tag: int, array: Array) -> Sending:
        """Start to send a flat array. Called by `turn`."""
        self._waker.wake()  # the message is posted in the next round
        return Sending(self._matcher, dest, tag, array)

    def receive(self, source: int, tag: int, array: Array) -> Receiving:
        """Start to receive exactly the elements of a flat array, from `source` or ANY_SOURCE. Called by `turn`."""
        self._waker.wake()
        return Receiving(self._matcher, source, tag, ExactTarget(array).place)

    def receive_sized(self, source: int, tag: int, room: Callable[[int], Array]) -> Receiving:
        """Start to receive bytes. `room` returns memory for a number of them, or raises ArgumentError. For `turn`."""
        self._waker.wake()
        return Receiving(self._matcher, source, tag, lambda message: raw(room(message.announce.size)))

    @property
    def _matcher(self) -> Matcher:
        assert self._connections is not None
        return self._connections.matcher
