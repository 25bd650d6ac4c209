"""What a rank makes of the frames of others when a call has failed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from softnic.comm import messages
from softnic.comm.arrivals import Arrival, SourceNumbers
from softnic.comm.matching import Matcher
from softnic.comm.offload_queue import Failure
from softnic.comm.progress import Progress
from softnic.comm.transport import Transport
from softnic.comm.zerocopy_channel import RecvOp
from softnic.mpi.arguments.message_target import BufferTarget, ExactTarget

CALLS = "mismatched call: rank 2 called Bcast(root=1), ranks 0, 1, 3 called Bcast(root=0)"


class _NoKeepAlive(Transport):
    def keep_alive(self, connection: socket.socket) -> None:
        pass


@pytest.fixture
def other() -> Iterator[tuple[Progress, socket.socket]]:
    """Rank 3, and its control connection as rank 0 has it."""
    with ExitStack() as stack:
        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        progress = Progress(3, 4)
        progress.connect(0, mine)
        progress.listener = Matcher(progress)
        stack.callback(progress.close)
        yield progress, stack.enter_context(theirs)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("Bcast on rank 0: a cat bit the cable", "rank 0 says: Bcast on rank 0: a cat bit the cable"),
        (f"Bcast on rank 0: {CALLS}", CALLS),
    ],
)
def test_the_last_words_of_a_rank_explain_that_it_is_gone(
    other: tuple[Progress, socket.socket], told: str, text: str
) -> None:
    progress, connection = other
    connection.sendall(messages.pack(messages.Abort(2, told)))
    connection.close()
    assert progress.explain(Failure(0, "rank 0 cancelled Bcast")) == Failure(2, text)


HOSTILE = "it \x1b[2J\x9b2J raised"


def test_text_of_others_has_no_escape_sequences(other: tuple[Progress, socket.socket]) -> None:
    progress, connection = other
    connection.sendall(messages.pack(messages.Waiting(1, HOSTILE)) + messages.pack(messages.Leave(0, HOSTILE)))
    connection.close()
    texts = [progress.explain(Failure(0, "rank 0 cancelled Bcast")).text]
    peer = progress.peers[0]
    assert peer.waiting is not None
    texts += [peer.waiting.call, str(progress.missing(peer, "taking part"))]
    memory = np.zeros(4, np.uint8)
    for place, announce in (
        (BufferTarget(memory).place, messages.Announce(0, 4, "", HOSTILE)),
        (BufferTarget(memory).place, messages.Announce(0, 4, HOSTILE)),
        (ExactTarget(memory).place, messages.Announce(0, 4, HOSTILE)),
    ):
        with pytest.raises(ValueError, match="raised") as caught:
            place(Arrival(0, announce, RecvOp(4), 0, SourceNumbers()))
        texts.append(str(caught.value))
    assert all("raised" in text and text.isprintable() for text in texts), texts
