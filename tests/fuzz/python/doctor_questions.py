"""Datagrams to `softnic doctor --listen`.

Whatever arrives is a question or counted as rejected, an answer is never longer, and what is remembered is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator

from softnic.doctor import probes
from softnic.doctor.listener import Responder
from tests.fuzz.python._input import Input

_KEY = bytes(range(32))


def feed(data: bytes) -> None:
    """Input: length of a datagram (2 bytes; the highest bit: by TCP), its bytes behind the mark of a message."""
    given, responder, fed = Input(data), Responder(_KEY, "1.0", lambda: 5.0), 0
    while given:
        length = given.number(2)
        datagram = probes.MAGIC + given.take(length & 0x7FF)
        fed += 1
        if length & 0x8000:
            responder.answer_line(datagram)
            continue
        answer = responder.answer(datagram)
        assert answer is None or len(answer) <= len(datagram)
        assert answer is None or probes.decode(answer, probes.Answer) is not None
    assert responder.counters.questions + responder.counters.rejected == fed


def seeds() -> Iterator[bytes]:
    questions = (
        probes.Question(token="run", number=1, nonce="once", facts=True),
        probes.Question(token="run", number=2, echo=True),
        probes.Question(token="other", burst=True),
    )
    pieces = [probes.encode(each, 400)[len(probes.MAGIC) :] for each in questions]
    framed = [len(piece).to_bytes(2, "little") + piece for piece in pieces]
    yield from framed
    yield b"".join(framed)
    yield b"".join((0x8000 | len(piece)).to_bytes(2, "little") + piece for piece in pieces)
