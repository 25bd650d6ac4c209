"""Daemons on links that are slow, far away and unreliable: the stream stays what it was, and captures show it."""

from __future__ import annotations

import os
import select
import socket as plain
import threading

import numpy as np
import pytest

from softnic import codecs, control, socket
from tests.daemon.nics import WAIT_S, Nic, pair, read_all, running

LOSSY = (
    *("--offload", "0x28=bounded:10", "--rate", "1gbit", "--delay", "200us", "--jitter", "50us", "--loss", "1%"),
    *("--duplicate", "1%", "--reorder", "2%", "--corrupt", "1%", "--seed", "5"),
)


def test_a_bad_link_alters_nothing() -> None:
    plain_bytes = os.urandom(1_000_000)
    floats = np.random.default_rng(3).normal(0, 0.01, 250_000).astype(np.float32)
    with running(2, *LOSSY) as nics:
        a, b = pair(nics)

        def write() -> None:
            with a:
                for _ in range(2):
                    a.sendall(plain_bytes)
                    a.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
                    a.sendall(floats.tobytes())
                    a.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)

        writer = threading.Thread(target=write)
        writer.start()
        with b:
            received = read_all(b)
        writer.join()
        expected = plain_bytes + codecs.get("bounded:10").roundtrip(floats).tobytes()
        assert received == 2 * expected
        counters = [nic.counters() for nic in nics]
        assert counters[0]["emulated_lost"] > 0
        assert sum(value for name, value in counters[1].items() if name.startswith("rx_drop_")) > 0


def test_a_rate_is_kept(nics: list[Nic]) -> None:
    """80 Mbit/s for 1 MB: a tenth of a second, and tagged floats need less of it."""
    del nics
    with running(2, "--offload", "0x28=bounded:10", "--rate", "80mbit") as slow:
        a, b = pair(slow)
        with a, b:
            start = os.times().elapsed
            a.sendall(bytes(1_000_000))
            read_all(b, 1_000_000)
            assert os.times().elapsed - start > 0.09


def test_a_stop_is_heard_over_a_slow_link() -> None:
    with running(2, "--delay", "100ms") as nics:
        a, b = pair(nics)
        with a, b:
            assert nics[0].stop() == 0
            with pytest.raises(ConnectionResetError):
                b.recv(1)


def test_a_capture_gets_blocks_until_its_reader_has_enough(nics: list[Nic]) -> None:
    ours, theirs = plain.socketpair()
    with ours, nics[0].client() as client:
        with theirs:
            assert client.call(control.Capture(0, 1), theirs.fileno()) == control.Done()
        a, b = pair(nics)
        with a, b:
            a.sendall(b"captured bytes")
            read_all(b, 14)
        assert select.select([ours], [], [], WAIT_S)[0]
        ours.shutdown(socket.SHUT_WR)
        blocks = read_all(ours)
    assert blocks.count(b"captured bytes") == 2  # on the host's side and on the wire
    assert len(blocks) % 4 == 0
