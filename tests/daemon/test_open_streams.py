"""Streams that a program opens first and then names by number alone, as programs that keep no state of them do."""

from __future__ import annotations

import socket as plain

import pytest

from softnic.ipc import control
from softnic.ipc.client import Client
from softnic.ipc.control import NIC_CODEC, SOL_NIC
from tests.daemon.nics import Nic

ANY = "0.0.0.0"


def opened(client: Client) -> tuple[plain.socket, int]:
    """Return the program's end of a new stream, and its number."""
    ours, theirs = plain.socketpair()
    with theirs:
        return ours, client.call(control.Open(), theirs.fileno()).stream


def test_a_stream_is_bound_connected_and_asked_by_its_number(nics: list[Nic]) -> None:
    first, second = Client(nics[0].path), Client(nics[1].path)
    listening, number = opened(second)
    with listening:
        assert second.call(control.QueryStream(number)).local == (ANY, 0)
        port = second.call(control.Bind(ANY, 0, stream=number)).port
        second.call(control.Listen(number, 5))
        connecting, other = opened(first)
        with connecting:
            connecting.send(b"x")  # what waits at Connect is discarded
            first.call(control.Connect(nics[1].ip, port, other))
            mark, fds, _, _ = plain.recv_fds(listening, 100, 1)
            accepted = plain.socket(fileno=fds[0])
            with accepted:
                record = accepted.recv(control.ACCEPTED.size)
                peer = second.call(control.QueryStream(control.ACCEPTED.unpack(record)[0])).peer
                assert (mark, peer) == (control.ACCEPT_MARK, first.call(control.QueryStream(other)).local)
                connecting.sendall(b"whole")
                assert accepted.recv(100) == b"whole"
    first.close()
    second.close()


def test_a_stream_that_is_closed_before_it_is_bound_is_forgotten(nics: list[Nic]) -> None:
    client = Client(nics[0].path)
    ours, number = opened(client)
    ours.close()
    assert client.call(control.QueryStream(number)).state == "CLOSED"
    with pytest.raises(OSError, match="no stream"):
        client.call(control.Bind(ANY, 0, stream=number))
    client.close()


def test_options_are_the_nics_and_bind_reuses_an_address_that_they_allow(nics: list[Nic]) -> None:
    client = Client(nics[0].path)
    ours, number = opened(client)
    with ours:
        for level, name, default, value in (
            (plain.SOL_SOCKET, plain.SO_REUSEADDR, 0, 1),
            (plain.IPPROTO_TCP, plain.TCP_KEEPIDLE, 7200, 5),
            (plain.IPPROTO_TCP, plain.TCP_CONGESTION, "auto", "reno"),
            (SOL_NIC, NIC_CODEC, "", "bfp:7"),
        ):
            assert client.call(control.QueryOption(number, level, name)).value == default
            client.call(control.SetOption(number, level, name, value))
            assert client.call(control.QueryOption(number, level, name)).value == value
    assert client.call(control.QueryOption(number, plain.IPPROTO_TCP, plain.TCP_KEEPIDLE)).value == 5  # closed
    client.close()
