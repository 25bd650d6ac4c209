"""What a host answers to `softnic doctor PEER`.

An answer is one to the question or ignored, and what is said of it has no character that a terminal interprets.
"""

from __future__ import annotations

from collections.abc import Iterator

from softnic.doctor import path, probes
from softnic.doctor.client import answer_to

_KEY = bytes(range(32))
_ASKED = probes.Question(token="run", number=1, nonce="once", facts=True)
_SETTINGS = path.PathSettings(("192.0.2.2", 4789), _KEY, version="1.0", measure=False)


def feed(data: bytes) -> None:
    """Input: a datagram behind the mark of a message."""
    answer = answer_to(_ASKED, probes.QUESTION_BYTES, probes.MAGIC + data)
    if answer is None:
        return
    assert (answer.token, answer.number, answer.size) == ("run", 1, probes.QUESTION_BYTES)
    assert 0 <= path.burst_rate(answer, 1000, 0.5) <= 16_000
    if answer.facts is not None:
        found = path.compare(answer.facts, _SETTINGS, _ASKED.nonce, "192.0.2.2", 0.001)
        assert [each.check for each in found] == ["version", "key", "time"]
        assert all(each.text.isprintable() for each in found)


def seeds() -> Iterator[bytes]:
    facts = (
        None,
        probes.Facts(version="1.0", control=9, codecs=255, time_s=1.7e9, proof=probes.proof(_KEY, "once")),
        probes.Facts(version="2.0", control=1, codecs=1, time_s=0.5),
    )
    for each in facts:
        answer = probes.Answer(
            token="run", number=1, size=probes.QUESTION_BYTES, received=3, burst_bytes=9, burst_s=0.1, facts=each
        )
        yield probes.encode(answer)[len(probes.MAGIC) :]
