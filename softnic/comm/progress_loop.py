"""One thread that has many requests and messages of a communicator on its hands at a time.

The blocking calls wait for one thing each, and hold the communicator meanwhile. A driver waits for all at once: what
NICs execute (nonblocking.py), messages on their way in and out, and a bell that others ring when there is more to do.

    driver = Driver(comm)
    driver.run("training", turn)     # in the one thread that makes this communicator's calls
    driver.ring()                    # in any other

Receives match messages as in p2p.py. While a driver runs, its thread makes all calls of the communicator.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from softnic.collectives.elements import name_of
from softnic.comm import messages
from softnic.comm.buffers import Array, raw
from softnic.comm.channel import Outgoing
from softnic.comm.communicator import Communicator
from softnic.comm.connections import Session
from softnic.comm.errors import CommError
from softnic.comm.matching import Matcher, Message, Receive
from softnic.comm.waiting import Bell


class Sending:
    """A message on its way out. Its memory belongs to it until it is `over`."""

    def __init__(self, matcher: Matcher, dest: int, tag: int, array: Array) -> None:
        self._matcher = matcher
        self._dest = dest
        announce = messages.Announce(tag, array.nbytes, name_of(array.dtype))
        self._outgoing: Outgoing | None = matcher.begin_send(dest, announce, raw(array))

    @property
    def over(self) -> bool:
        """Raises CommError if it never will be."""
        return self._outgoing is None or self._matcher.sent(self._dest, self._outgoing)


class Receiving:
    """A message on its way in, of exactly as many elements as `array` has and of their type."""

    def __init__(self, matcher: Matcher, source: int, tag: int, array: Array) -> None:
        self._matcher = matcher
        self._array = array
        self._done = False
        self._receive = Receive(source, tag, self._place)
        matcher.begin_receive(self._receive)

    @property
    def over(self) -> bool:
        """Whether it is there. Raises CommError if it never will be."""
        if not self._done and self._matcher.arrived(self._receive):
            self._matcher.end_receive(self._receive)
            self._done = True
        return self._done

    @property
    def source(self) -> int:
        """Who sent it, once it is there."""
        assert self._receive.message is not None
        return self._receive.message.source

    def _place(self, message: Message) -> memoryview:
        array, announce = self._array, message.announce
        if (announce.size, announce.dtype) != (array.nbytes, name_of(array.dtype)):
            text = f"rank {message.source} sent {announce.size} bytes of {announce.dtype or 'an object'}"
            wanted = f"{array.nbytes} of {name_of(array.dtype)}"
            raise CommError(f"{text} where {wanted} are expected", rank=message.source)
        return raw(array)


class Driver:
    """Of one communicator, run by one thread at a time."""

    def __init__(self, comm: Communicator) -> None:
        self._world = comm._world
        self._bell = Bell()
        self._session: Session | None = None

    def ring(self) -> None:
        """Has `run` ask its `turn` again, or return from `rest`. From any thread."""
        self._bell.ring()

    def close(self) -> None:
        """Releases what it polls. To be called by the thread that ran it; `ring` has no effect from then on."""
        self._bell.close()

    def abort(self, text: str) -> None:
        """Ends the communicator on all ranks. Not while `run` is."""
        self._world.abort(text)

    def rest(self) -> None:
        """Returns when the bell is rung. Nothing is on anybody's hands meanwhile."""
        poll = select.poll()
        poll.register(self._bell.descriptor, select.POLLIN)
        poll.poll()
        self._bell.quiet()

    def run(self, name: str, turn: Callable[[], bool]) -> None:
        """Asks `turn`, which may begin and look after anything, whenever something has happened, until it says True.
        Raises CommError, which ends the communicator; `name` stands for the call in its text."""
        with self._world.call(name) as session:
            self._session = session
            session.progress.watch(self._bell.descriptor, select.POLLIN)

            def done() -> bool:
                self._bell.quiet()
                over = turn()
                if session.group is not None and session.group.failure is None:
                    session.progress.watch(*session.group.wants)
                return over

            try:
                session.progress.run(done)
            finally:
                session.progress.unwatch(self._bell.descriptor)

    def send(self, dest: int, tag: int, array: Array) -> Sending:
        """Begins to send a flat array. To be called by `turn`."""
        self._bell.ring()  # what has been queued now is polled for in the next round
        return Sending(self._matcher, dest, tag, array)

    def receive(self, source: int, tag: int, array: Array) -> Receiving:
        """Begins to receive into a flat array, from `source` or ANY_SOURCE. To be called by `turn`."""
        self._bell.ring()
        return Receiving(self._matcher, source, tag, array)

    @property
    def _matcher(self) -> Matcher:
        assert self._session is not None
        return self._session.matcher
