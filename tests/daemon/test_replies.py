"""Control requests whose reply is late or never comes."""

from __future__ import annotations

import contextlib
import errno
import socket as plain
import threading
from pathlib import Path

import pytest

from softnic.ipc import control
from softnic.ipc.client import Client
from tests.daemon.nics import WAIT_S, Nic, paused, until


def test_a_late_reply_does_not_answer_the_next_request(nics: list[Nic]) -> None:
    with contextlib.closing(Client(nics[0].path, timeout_s=1.0)) as client:
        with paused(nics[0]), pytest.raises(OSError, match="timed out") as caught:
            client.call(control.QueryStats())
        assert caught.value.errno == errno.ENETDOWN
        until(lambda: is_answered(client))


def is_answered(client: Client) -> bool:
    """Return whether a Hello was answered in time; checks that the reply is that of a Hello."""
    try:
        reply = client.call(control.QueryNic())
    except OSError as error:
        if error.errno != errno.ENETDOWN:
            raise
        return False
    assert isinstance(reply, control.NicInfo)
    return True


def test_a_connection_closed_without_a_reply_means_the_nic_is_lost(tmp_path: Path) -> None:
    with plain.socket(plain.AF_UNIX, plain.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "nic"))
        listening.listen()

        def close_after_request() -> None:
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.recv(1000) == control.encode(control.QueryNic())

        thread = threading.Thread(target=close_after_request)
        thread.start()
        with contextlib.closing(Client(tmp_path / "nic", timeout_s=WAIT_S)) as client:
            with pytest.raises(OSError, match="is gone: it closed the connection") as caught:
                client.call(control.QueryNic())
            assert caught.value.errno == errno.ENETDOWN
        thread.join()


def test_the_error_says_that_a_lost_nic_was_not_replaced(tmp_path: Path) -> None:
    with plain.socket(plain.AF_UNIX, plain.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "nic"))
        listening.listen()
        client = Client(tmp_path / "nic", timeout_s=WAIT_S)
    with contextlib.closing(client):
        for _ in range(2):
            with pytest.raises(OSError, match=r"^\[Errno 100\] no NIC answers at .* is softnicd running"):
                client.call(control.QueryNic())
