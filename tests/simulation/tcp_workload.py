"""One end of a conversation: plays its half's script on a connection, and holds what comes against what was said."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from tests.facades.tcp import CUT, HANDSHAKE, Closed, Connection, Event, State
from tests.simulation.actions import Abort, Await, Conversation, Finish, Leave, Sleep, Write, arrives
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.machine import Machine


class Talk:
    """What is known of a conversation, from outside: how each end is getting on. A half is 0 for the client's, 1 for
    the server's."""

    def __init__(self, conversation: Conversation, table_codecs: tuple[str | None, str | None]) -> None:
        self.conversation = conversation
        self.expected = tuple(
            arrives(half.script, codec) for half, codec in zip(conversation.halves, table_codecs, strict=True)
        )
        """What the other end is to receive of each half."""
        self.ends: list[str] = ["", ""]
        """How each ended: whole, left, reset, lost (its NIC died), or the error's text."""
        self.accepted = False
        self.void = False
        """Its client's port was in use."""

    @property
    def quits(self) -> bool:
        return any(half.quits for half in self.conversation.halves)

    def __str__(self) -> str:
        return f"conversation {self.conversation.number}"


class Talker:
    """A program on a machine. `side` is the half that it plays."""

    def __init__(self, machine: Machine, talk: Talk, side: int, connection: Connection) -> None:
        self._machine = machine
        self._talk = talk
        self._side = side
        self._half = talk.conversation.halves[side]
        self._expected = talk.expected[1 - side]
        self.connection = connection
        self._script = deque(self._half.script)
        self._written = 0
        """Of the first action, if that is a Write."""
        self._total_written = 0
        self._got = 0
        self._acts_at = self._reads_at = 0.0
        self._lent: deque[tuple[int, memoryview]] = deque()
        """Memory that is lent, and how much must have been returned before it is this program's again."""
        self._lent_bytes = 0
        self._finished = False
        self._closed: Closed | None = None
        self._configure()

    def _configure(self) -> None:
        connection, half = self.connection, self._half
        connection.set_nodelay(half.nodelay)
        connection.set_blocks(half.blocks)
        connection.set_user_timeout(half.user_timeout_s)
        if half.keepalive is not None:
            connection.set_keepalive(half.keepalive, self._machine.local)

    @property
    def over(self) -> bool:
        return bool(self._talk.ends[self._side])

    def take(self, event: Event) -> None:
        """What TCP has to say of the connection."""
        if isinstance(event, Closed):
            self._closed = event

    def accepted(self, now: float) -> None:
        """It was taken in just now, and may have failed while it waited: then there is no event to come."""
        if self.connection.state is State.CLOSED and not self.over and self._closed is None:
            self._closed = Closed(self.connection, self.connection.error)
        self.advance(now)

    def crashed(self) -> None:
        """The machine's NIC died."""
        self._end("lost")

    def next_time(self, now: float) -> float:
        """When it wants to act, if nothing happens to its connection."""
        return min((time for time in (self._acts_at, self._reads_at) if time > now), default=math.inf)

    def advance(self, now: float) -> None:
        """Does what it can. `now` is the world's."""
        if self.over:
            return
        closed = self._closed
        if closed is not None:
            self._take_rest(closed)
            return
        self._read(now)
        self._reuse()
        self._act(now)
        if not self.over and self._finished and self.connection.eof and not self.connection.received:
            self.connection.close(self._machine.local)
            self._end("whole")

    # Reading

    def _read(self, now: float) -> None:
        connection, half = self.connection, self._half
        if now < self._reads_at:
            return
        if connection.received:
            self._check(connection.recv(half.read_bytes))
            self._reads_at = now + half.read_pause_s
        if connection.eof and not connection.received:
            self._check_end()

    def _check(self, data: bytes) -> None:
        wanted = self._expected[self._got : self._got + len(data)]
        if data != wanted:
            wrong = next((at for at, (a, b) in enumerate(zip(data, wanted, strict=False)) if a != b), len(wanted))
            raise Violation(
                f"byte {self._got + wrong} of {len(self._expected)} of {self._talk} arrives wrong at {self._name}"
            )
        self._got += len(data)

    def _check_end(self) -> None:
        if self._got != len(self._expected):
            raise Violation(f"{self._talk} ends at {self._name} after {self._got} of {len(self._expected)} bytes")

    def _take_rest(self, closed: Closed) -> None:
        """The connection is over. What came before that is still there."""
        while data := self.connection.recv(1 << 20):
            self._check(data)
        if not closed.errno and self.connection.eof:
            self._check_end()
        whole = not closed.errno and self.connection.eof and self._finished
        self._end("whole" if whole else self.connection.error_message or "reset")

    # Acting

    def _act(self, now: float) -> None:
        if self.connection.state in HANDSHAKE and not self._half.eager:
            return
        while self._script and now >= self._acts_at:
            action = self._script[0]
            if isinstance(action, Write):
                if not self._write(action):
                    return
                self._written = 0
            elif isinstance(action, Sleep):
                self._acts_at = now + action.seconds
            elif isinstance(action, Await):
                if self._got < action.count:
                    return
            elif isinstance(action, Finish):
                self.connection.shutdown_write()
                self._finished = True
            else:
                self._quit(action)
                return
            self._script.popleft()

    def _write(self, action: Write) -> bool:
        """Whether all of it is written."""
        if not self._written:
            self.connection.tag(action.tag)
        data = memoryview(action.data)
        while self._written < len(data):
            rest = data[self._written :]
            sent = self._lend(rest) if self._half.lends else self.connection.send(rest)
            if not sent:
                return False
            self._written += sent
            self._total_written += sent
        if self._half.ahead:
            self._tag_ahead()
        return True

    def _lend(self, data: memoryview) -> int:
        """How much of it went, as a loan as far as that may be."""
        buffer = self.connection.snd.buffer
        count = buffer.zerocopy_len(len(data))
        if not count:
            return self.connection.send(data[: CUT - (buffer.end - buffer.tag_range(buffer.end).origin) % CUT])
        memory = memoryview(bytearray(data[:count]))
        if not self.connection.send_zerocopy(memory, 0, count):
            return 0
        self._lent_bytes += count
        self._lent.append((self._lent_bytes, memory))
        return count

    def _reuse(self) -> None:
        """What has been returned is written over: nobody may look at it any more."""
        while self._lent and self._lent[0][0] <= self.connection.snd.buffer.zerocopy.completed_bytes:
            memory = self._lent.popleft()[1]
            memory[:] = bytes(len(memory))

    def _tag_ahead(self) -> None:
        """The next range begins where this write has ended: nothing is lost if that is said twice."""
        following = [action for action in list(self._script)[1:] if isinstance(action, Write)]
        if following:
            self.connection.tag(following[0].tag, self._total_written)

    def _quit(self, action: Leave | Abort) -> None:
        connection, local = self.connection, self._machine.local
        if isinstance(action, Abort):
            connection.abort(local)
            self._end("reset")
        else:
            connection.close(local)
            self._end("left")

    @property
    def _name(self) -> str:
        return f"{self._machine.name} from {self.connection.peer_name}"

    def _end(self, how: str) -> None:
        if not self.over:
            self._talk.ends[self._side] = how
            self._machine.log(f"{self._talk} ends at its {('client', 'server')[self._side]}: {how}")
