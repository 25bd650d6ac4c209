"""Questions and answers of `softnic doctor`, by tables and with dishonest peers. No network but loopback's."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.doctor import listener, path, probes
from softnic.doctor.client import ProbeClient, answer_to
from softnic.doctor.findings import Finding
from softnic.doctor.listener import MAX_LINES, MAX_TOKENS, ProbeListener, Responder
from softnic.link.sockets import open_socket

KEY = bytes(range(32))
HOSTILE = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    probes.MAGIC,
    probes.MAGIC + b"{}",
    probes.MAGIC + b"[" * 1300,
    probes.MAGIC + b'{"token":"a","x":' + b"[" * 1300,
    probes.MAGIC + b'{"token":"\xff"}',
    probes.MAGIC + b'{"token":"\\ud800"}',
    probes.MAGIC + b'{"token":"a\\u001b[2J"}',
    probes.MAGIC + '{"token":"ü"}'.encode(),
    probes.MAGIC + b'{"token":"' + b"a" * 81 + b'"}',
    probes.MAGIC + b'{"token":"a","number":-1}',
    probes.MAGIC + b'{"token":"a","number":9007199254740992}',
    probes.MAGIC + b'{"token":"a","number":1e999}',
    probes.MAGIC + b'{"token":"a","number":' + b"9" * 5000 + b"}",
    probes.MAGIC + b'{"token":"a","nonce":"\xc3\xbc","burst_s":-1}',
]
"""What neither side takes for a message."""


def question(**given: Any) -> probes.Question:
    return probes.Question(**{"token": "run", "number": 1, "nonce": "once", "facts": True, **given})


def answered(responder: Responder, asked: probes.Question, size: int = probes.QUESTION_BYTES) -> probes.Answer | None:
    datagram = responder.answer(probes.encode(asked, size))
    assert datagram is None or len(datagram) <= size
    answer: probes.Answer | None = None if datagram is None else answer_to(asked, size, datagram)
    return answer


@pytest.mark.parametrize("datagram", HOSTILE)
def test_what_is_no_message_is_counted_and_not_answered(datagram: bytes) -> None:
    responder = Responder(KEY)
    assert responder.answer(datagram) is None
    assert responder.answer_line(datagram) is None
    assert (responder.counters.questions, responder.counters.rejected) == (0, 2)
    assert probes.decode(datagram, probes.Answer) is None


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes(data: bytes, is_marked: bool) -> None:
    datagram = (probes.MAGIC if is_marked else b"") + data
    responder = Responder(KEY)
    answer = responder.answer(datagram)
    assert answer is None or len(answer) <= len(datagram)
    assert responder.counters.questions + responder.counters.rejected == 1


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("size", [200, 1100, 8972])
def test_an_answer_names_its_question(echo: bool, size: int) -> None:
    responder = Responder()
    asked = question(echo=echo, facts=False)
    datagram = responder.answer(probes.encode(asked, size))
    assert datagram is not None
    assert len(datagram) == size if echo else len(datagram) < 200
    answer = answer_to(asked, size, datagram)
    assert answer is not None
    assert (answer.token, answer.number, answer.size, answer.received) == ("run", 1, size, 1)
    assert answer_to(asked, size + 1, datagram) is None
    assert answer_to(question(echo=echo, number=2), size, datagram) is None
    assert answer_to(question(echo=echo, token="other"), size, datagram) is None
    assert (answer_to(asked, size, datagram[:-1] if echo else datagram + b"\0") is None) == echo


def test_an_answer_longer_than_the_question_is_not_sent() -> None:
    responder = Responder(KEY)
    asked = question()
    sizes = range(len(probes.encode(asked)), 500)
    sent = [answered(responder, asked, size) is not None for size in sizes]  # which checks the lengths
    assert (sent[0], sent[-1]) == (False, True)


def test_counts_are_those_of_a_run() -> None:
    responder = Responder()
    for number in range(1, 4):
        answer = answered(responder, question(number=number))
        assert answer is not None
        assert answer.received == number
    other = answered(responder, question(token="other"))
    assert other is not None
    assert other.received == 1
    line = responder.answer_line(probes.encode(question()))
    assert line is not None
    assert probes.decode(line, probes.Answer).received == 3, "a question by TCP is no datagram"


def test_the_oldest_run_is_forgotten() -> None:
    responder = Responder()
    for run in range(MAX_TOKENS):
        answered(responder, question(token=str(run)))
    seen = [
        (answered(responder, question(token=str(run))) or probes.Answer(token="")).received
        for run in (0, MAX_TOKENS - 1)
    ]
    assert seen == [2, 2]
    answered(responder, question(token="one more"))
    for run, received in ((1, 3 - 1), (0, 1)):  # 0 was the oldest; asking for it again forgets 1
        answer = answered(responder, question(token=str(run)))
        assert answer is not None
        assert answer.received == received


def test_a_burst_is_counted_from_its_first_piece_and_not_answered() -> None:
    now = [10.0]
    responder = Responder(clock=lambda: now[0])
    for _ in range(5):
        assert responder.answer(probes.encode(question(burst=True), 1000)) is None
        now[0] += 0.25
    answer = answered(responder, question())
    assert answer is not None
    assert (answer.burst_bytes, answer.burst_s, answer.received) == (4000, 1.0, 6)


@pytest.mark.parametrize(
    ("burst_bytes", "burst_s", "sent", "took_s", "rate_bps"),
    [
        (1000, 1.0, 2000, 1.0, 8000),
        (4000, 1.0, 2000, 1.0, 16000),
        (1 << 52, 1e-300, 2000, 1.0, 16000),
        (1000, 0.0, 2000, 1.0, 0),
        (1000, 1.0, 0, 0.0, 0),
        (0, 1.0, 2000, 1.0, 0),
    ],
)
def test_a_peer_cannot_claim_more_than_was_sent(
    burst_bytes: int, burst_s: float, sent: int, took_s: float, rate_bps: float
) -> None:
    answer = probes.Answer(token="a", burst_bytes=burst_bytes, burst_s=burst_s)
    assert path.burst_rate(answer, sent, took_s) == rate_bps


def compared(theirs: probes.Facts, key: bytes | None = KEY, nonce: str = "once") -> dict[str, Finding]:
    settings = path.PathSettings(("192.0.2.2", 4789), key, version="1.0")
    return {each.check: each for each in path.compare(theirs, settings, nonce, "192.0.2.2", 0.001)}


@pytest.mark.parametrize(
    ("key", "proven", "level", "text"),
    [
        (KEY, probes.proof(KEY, "once"), "ok", "both hosts have the same key"),
        (KEY, probes.proof(KEY, "another"), "problem", "the key of 192.0.2.2 is another one"),
        (KEY, probes.proof(KEY[::-1], "once"), "problem", "the key of 192.0.2.2 is another one"),
        (KEY, "", "problem", "this host has a key, 192.0.2.2 was given none"),
        (KEY, "x" * 64, "problem", "the key of 192.0.2.2 is another one"),
        (None, "x", "problem", "192.0.2.2 has a key, this host was given none"),
        (None, "", "ok", "neither side was given a key: frames are plain VXLAN"),
    ],
)
def test_proofs(key: bytes | None, proven: str, level: str, text: str) -> None:
    theirs = probes.Facts(version="1.0", control=1, codecs=1, time_s=0.0, proof=proven)
    assert (compared(theirs, key)["key"].level, compared(theirs, key)["key"].text) == (level, text)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [({}, set()), ({"version": "2.0"}, {"version"}), ({"control": 1}, {"version"}), ({"codecs": 1}, {"version"})],
)
def test_what_differs_is_a_problem(changes: dict[str, Any], wrong: set[str]) -> None:
    ours = probes.facts(KEY, "once", "1.0")
    fields = {name: getattr(ours, name) for name in ours.__struct_fields__}
    found = compared(probes.Facts(**{**fields, **changes}))
    assert {check for check, each in found.items() if each.level == "problem"} == wrong
    assert ("their codecs differ" in found["version"].text) == ("codecs" in changes)


@pytest.mark.parametrize("time_s", [0.0, 1e11])
def test_any_clock_is_a_note(time_s: float) -> None:
    ours = probes.facts(KEY, "once", "1.0")
    theirs = probes.Facts(version="1.0", control=ours.control, codecs=ours.codecs, time_s=time_s, proof=ours.proof)
    assert {check: each.level for check, each in compared(theirs).items()} == {
        "version": "ok",
        "key": "ok",
        "time": "note",
    }


@contextmanager
def dishonest(reply: Callable[[dict[str, Any]], bytes | None]) -> Iterator[tuple[str, int]]:
    """A peer that answers by UDP what `reply` makes of a question, and by TCP the same."""
    over = threading.Event()
    udp, tcp = listener.open_pair(("127.0.0.1", 0))
    tcp.settimeout(0.05)
    udp.settimeout(0.05)

    def made(data: bytes) -> bytes | None:
        body = data[len(probes.MAGIC) :].partition(b"\0")[0]
        return reply({**json.loads(body), "size": len(data)})

    def by_udp() -> None:
        while not over.is_set():
            try:
                data, peer = udp.recvfrom(1 << 16)
            except TimeoutError:
                continue
            if (answer := made(data)) is not None:
                udp.sendto(answer, peer)

    def by_tcp() -> None:
        while not over.is_set():
            try:
                connection, _ = tcp.accept()
            except TimeoutError:
                continue
            with connection:
                if (answer := made(connection.recv(4096))) is not None:
                    connection.sendall(answer)

    threads = [threading.Thread(target=each) for each in (by_udp, by_tcp)]
    for each in threads:
        each.start()
    try:
        host, port = udp.getsockname()
        yield host, port
    finally:
        over.set()
        for each in threads:
            each.join()
        udp.close()
        tcp.close()


def answer_with(**changes: Any) -> Callable[[dict[str, Any]], bytes]:
    def reply(asked: dict[str, Any]) -> bytes:
        answer = {"token": asked["token"], "number": asked.get("number", 0), "size": asked["size"], "received": 1}
        return probes.MAGIC + json.dumps({**answer, **changes}).encode()

    return reply


@pytest.mark.parametrize("datagram", [each for each in HOSTILE if each])
def test_a_peer_that_sends_no_answers(datagram: bytes) -> None:
    with dishonest(lambda _asked: datagram) as peer:
        client = ProbeClient(peer)
        assert client.ask(wait_s=0.02) is None
        assert client.ask_by_tcp() is None
        assert client.rejected > 1
        assert not client.is_other_version
        client.close()


def test_findings_of_a_peer_that_sends_no_answers() -> None:
    with dishonest(lambda _asked: b"no doctor") as peer:
        findings = path.check(path.PathSettings(peer)).findings
    assert [each.check for each in findings] == ["peer", "answers"]
    assert findings[0].text == f"no doctor listens at 127.0.0.1:{peer[1]}"
    assert f"replies of 127.0.0.1:{peer[1]} were not a doctor's" in findings[1].text


def test_a_peer_of_another_version_is_said() -> None:
    with dishonest(lambda _asked: b"softnic doctor 2\n{}") as peer:
        [found] = path.check(path.PathSettings(peer)).findings
    assert (found.check, found.level) == ("version", "problem")
    assert "speaks another version of its protocol" in found.text


def test_a_listener_tells_another_version_and_not_itself() -> None:
    responder = Responder()
    asked = b"softnic doctor 2\n".ljust(probes.QUESTION_BYTES, b"x")
    assert responder.answer(asked) == probes.MAGIC
    assert responder.answer(asked[:-1]) is None, "two listeners must not answer each other"
    assert responder.answer_line(b"softnic doctor 2\n{}") == probes.MAGIC
    assert responder.counters.rejected == 3


@pytest.mark.parametrize("changes", [{"number": 9}, {"token": "another"}, {"size": 7}, {"token": 5}, {"received": -1}])
def test_answers_to_something_else_are_none(changes: dict[str, Any]) -> None:
    with dishonest(answer_with(**changes)) as peer:
        client = ProbeClient(peer)
        assert client.ask(wait_s=0.02) is None
        by_tcp = client.ask_by_tcp()
        assert by_tcp is None or {"token", "received"}.isdisjoint(changes)
        client.close()


def test_an_echo_that_is_too_short_does_not_pass() -> None:
    with dishonest(answer_with()) as peer:
        client = ProbeClient(peer)
        assert client.ask(1200, wait_s=0.5) is not None
        assert client.ask(1200, echo=True, wait_s=0.02) is None
        client.close()


def test_escape_sequences_of_a_version_reach_nobody() -> None:
    theirs = {"version": "\x1b]0;evil\x07", "control": 1, "codecs": 1, "time_s": 0}
    with dishonest(answer_with(facts=theirs)) as peer:
        client = ProbeClient(peer)
        assert client.ask(wait_s=0.02) is None
        assert client.ask_by_tcp() is None
        assert client.rejected > 1
        client.close()


def test_any_port_is_one_that_is_free_by_udp_and_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1], taken.getsockname()[1], 0]
        monkeypatch.setattr(listener, "open_socket", lambda bind: open_socket((bind[0], ports.pop(0))))
        found = ProbeListener(("127.0.0.1", 0), KEY)
        assert found.address[1] not in (0, taken.getsockname()[1])
        assert not ports
        found.close()
        monkeypatch.undo()
        with pytest.raises(OSError, match="ddress already in use"):
            ProbeListener(taken.getsockname(), KEY)


def test_silent_connections_do_not_keep_a_listener_from_answering() -> None:
    over = threading.Event()
    listener = ProbeListener(("127.0.0.1", 0), KEY)
    thread = threading.Thread(target=listener.serve, args=(over.is_set,))
    thread.start()
    try:
        silent = [socket.create_connection(listener.address) for _ in range(2 * MAX_LINES)]
        client = ProbeClient(listener.address)
        assert client.ask(wait_s=1.0) is not None
        by_tcp = client.ask_by_tcp()
        assert by_tcp is not None
        assert by_tcp.received == 1
        client.close()
        silent[0].settimeout(60)
        assert silent[0].recv(1) == b""
        assert listener.counters.rejected >= MAX_LINES
        for each in silent:
            each.close()
    finally:
        over.set()
        thread.join()
        listener.close()
