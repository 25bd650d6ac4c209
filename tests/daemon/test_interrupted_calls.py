"""Calls to a NIC in the middle of another one of the same thread, which garbage collection and signal handlers make."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import Any

import pytest

from softnic import socket
from softnic.ipc import socket_state
from softnic.ipc.control import MAX_MESSAGE, NicInfo, QueryNic, encode
from tests.daemon.nics import WAIT_S, Nic, pair, read_all


def interrupted(monkeypatch: pytest.MonkeyPatch, nic: Nic, interruption: Callable[[], None]) -> Any:
    """Return the reply to a request that `interruption` has interrupted."""
    client = socket_state.client(nic.path)
    exchange, pending, replies = client._exchange, [interruption], []

    def exchange_after_interruption(*arguments: Any) -> Any:
        if pending:
            pending.pop()()
        return exchange(*arguments)

    monkeypatch.setattr(client, "_exchange", exchange_after_interruption)
    thread = threading.Thread(target=lambda: replies.append(client.call(QueryNic())), daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "the call waits for itself"
    return replies[0]


def test_a_socket_that_was_not_closed_is_collected(nics: list[Nic], monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    with nics[0].server() as listening:
        left = [socket.socket(nic=nics[0].path)]
        left[0].setblocking(False)
        assert left[0].connect_ex(listening.getsockname())
        accepted = listening.accept()[0]

        def collect() -> None:
            with pytest.warns(ResourceWarning, match="unclosed") as caught:
                left.clear()
            texts.extend(str(each.message) for each in caught)

        info = interrupted(monkeypatch, nics[0], collect)
        with accepted:
            assert read_all(accepted) == b""
    assert isinstance(info, NicInfo)
    assert any(f"laddr=('{nics[0].ip}', " in text for text in texts), texts


def test_other_calls_are_made_and_each_gets_its_own_reply(nics: list[Nic], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[socket.socket, socket.socket]] = []
    info = interrupted(monkeypatch, nics[0], lambda: made.append(pair(nics)))
    assert isinstance(info, NicInfo)
    assert info.ip == nics[0].ip
    [(one, other)] = made
    with one, other:
        assert one.getpeername() == other.getsockname()
        one.sendall(b"after the call that was interrupted")
        one.shutdown(socket.SHUT_WR)
        assert read_all(other) == b"after the call that was interrupted"


def test_a_reply_that_waits_is_not_taken_for_the_end_of_the_nic(
    nics: list[Nic], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = socket_state.client(nics[0].path)
    changes, closed = client.changes, []

    def check() -> None:
        connection = client._socket
        assert connection is not None
        connection.send(encode(QueryNic()))
        assert select.select([connection], [], [], WAIT_S)[0]
        client.check()
        closed.append(client.is_closed())
        connection.recv(MAX_MESSAGE)

    assert isinstance(interrupted(monkeypatch, nics[0], check), NicInfo)
    assert closed == [False]
    assert client.changes == changes
