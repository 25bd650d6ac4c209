"""Tags: exact to the byte for any writes, and when options may be set."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import tempfile
import threading

import numpy as np
import pytest

from softnic import codecs, socket
from tests.daemon.nics import WAIT_S, Nic, pair, read_all

QUICK_ON_LINKS = {
    "test_a_tag_applies_exactly_to_the_bytes_written_under_it",
    "test_a_tag_set_before_the_connection_applies_from_its_first_byte",
    "test_a_child_process_tags_the_connection_it_inherited",
}

BOUNDED = codecs.get("bounded:10")
GRADIENT = np.random.default_rng(7).normal(0, 0.01, 1 << 16).astype(np.float32)
FLOATS = GRADIENT.tobytes()


def tag(connection: socket.socket, tos: int) -> None:
    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)


def through_sendfile(connection: socket.socket, data: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        connection.sendfile(file)


def through_sendall(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)


def through_descriptor(connection: socket.socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(connection.fileno(), view) :]


WRITERS = (through_sendall, through_sendfile, through_descriptor)


def test_a_tag_applies_exactly_to_the_bytes_written_under_it(nics: list[Nic]) -> None:
    """Alternating plain and tagged ranges of any length, written in three ways; all bytes are compared."""
    rng = random.Random(11)
    sent: list[bytes] = []
    expected: list[bytes] = []
    tags: list[int] = []
    for number in range(300):
        length = rng.choice([1, 2, 3, 5, 63, 64, 65, 100, 1447, 1448, 1449, 5000, 100_000])
        tags.append(0x28 if number % 2 else rng.choice([0, 0x10]))
        start = rng.randrange(len(GRADIENT) - 25_001)
        data = GRADIENT[start : start + 25_001].tobytes()[:length]
        sent.append(data)
        if tags[-1] == 0x28:
            whole = length - length % 4
            data = BOUNDED.roundtrip(np.frombuffer(data[:whole], np.float32)).tobytes() + data[whole:]
        expected.append(data)
    a, b = pair(nics)
    a.setblocking(True)  # or os.write would not wait

    def write() -> None:
        with a:
            for data, tos in zip(sent, tags, strict=True):
                tag(a, tos)
                rng.choice(WRITERS)(a, data)

    writer = threading.Thread(target=write)
    writer.start()
    with b:
        received = read_all(b)
    writer.join()
    offset = 0
    for number, data in enumerate(expected):
        got = received[offset : offset + len(data)]
        assert got == data, f"range {number} of {len(data)} bytes, tag {tags[number]:#x}"
        offset += len(data)
    assert len(received) == offset


def test_a_tag_set_before_the_connection_applies_from_its_first_byte(nics: list[Nic]) -> None:
    expected = BOUNDED.roundtrip(GRADIENT).tobytes()
    with nics[1].server() as listening:
        tag(listening, 0x28)  # inherited by what it accepts
        with socket.socket(nic=nics[0].path) as opened:
            opened.settimeout(WAIT_S)
            tag(opened, 0x28)
            opened.connect(listening.getsockname())
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x28
                for writer, reader in ((opened, accepted), (accepted, opened)):
                    writer.sendall(FLOATS)
                    assert read_all(reader, len(FLOATS)) == expected
                    info = socket.info(writer)
                    assert info.codec == "bounded:10"
                    assert info.peer_codecs == [number for number in range(16) if codecs.BUILT_IN >> number & 1]
                    assert info.offload_original_bytes >= len(FLOATS)
                    if not info.retransmits:
                        assert info.offload_original_bytes == len(FLOATS)
                    assert info.ratio > 2


def test_a_tag_does_not_apply_to_bytes_that_wait_for_tcp(nics: list[Nic]) -> None:
    """They were written before it and are still in the descriptor, because the peer does not read."""
    a, b = pair(nics)
    with a, b:
        a.setblocking(False)
        plain = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                plain += a.send(FLOATS[plain % len(FLOATS) :])
        tag(a, 0x28)
        a.settimeout(WAIT_S)
        writer = threading.Thread(target=a.sendall, args=(FLOATS,))
        writer.start()
        received = read_all(b, plain + len(FLOATS))
        writer.join()
    assert received[:plain] == (FLOATS * (plain // len(FLOATS) + 1))[:plain]
    assert received[plain:] == BOUNDED.roundtrip(GRADIENT).tobytes()


def test_a_socket_may_choose_another_codec(nics: list[Nic]) -> None:
    a, b = pair(nics)
    other = codecs.get("inceptionn:8")
    with a, b:
        tag(a, 0x28)
        a.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, b"inceptionn:8")
        assert a.getsockopt(socket.SOL_NIC, socket.NIC_CODEC) == b"inceptionn:8"
        a.sendall(FLOATS)
        assert read_all(b, len(FLOATS)) == other.roundtrip(GRADIENT).tobytes()
        a.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, "raw")
        a.sendall(FLOATS)
        assert read_all(b, len(FLOATS)) == FLOATS
        a.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, b"")
        a.sendall(FLOATS)
        assert read_all(b, len(FLOATS)) == BOUNDED.roundtrip(GRADIENT).tobytes()


@pytest.mark.parametrize("codec", ["bfp:7", "bfp:12", "truncate:16", "truncate:9"])
def test_coding_blocks_are_whole_for_any_writes(nics: list[Nic], codec: str) -> None:
    """A word's decoded value depends on its block, which must not depend on the timing of writes."""
    rng, found = random.Random(12), codecs.get(codec)
    a, b = pair(nics)
    with a, b:
        a.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, codec)
        a.setsockopt(socket.SOL_NIC, socket.NIC_BLOCKS, 1)
        tag(a, 0x28)
        written, received = 0, b""
        while written < 20_000:
            length = rng.choice([4, 20, 64, 68, 300, 1500])
            a.sendall(FLOATS[written : written + length])
            written += length
            received += read_all(b, written // 64 * 64 - len(received))  # and so all before it has left
        tag(a, 0)  # the end of the range flushes the rest
        received += read_all(b, written - len(received))
    assert received == found.roundtrip(GRADIENT[: written // 4]).tobytes()


def test_auto_gives_the_floats_of_its_codec_and_reports_its_choice(nics: list[Nic]) -> None:
    a, b = pair(nics)
    codec = codecs.get("inceptionn:9")
    with a, b:
        tag(a, 0x28)
        a.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, b"auto:inceptionn:9")
        assert socket.info(a).auto is None
        before = nics[0].counters()
        for _ in range(20):
            a.sendall(FLOATS)
            assert read_all(b, len(FLOATS)) == codec.roundtrip(GRADIENT).tobytes()
        info = socket.info(a)
        assert info.codec == "auto:inceptionn:9"
        assert info.auto is not None
        assert info.auto.why.startswith("auto: ")
        after = nics[0].counters()
        sent = [after[name] - before[name] for name in ("tx_auto_compressed_bytes", "tx_auto_raw_bytes")]
        assert sum(sent) >= 20 * len(FLOATS)  # more, if something was retransmitted
        a.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, b"bounded:10")
        assert socket.info(a).auto is None


def test_a_child_process_tags_the_connection_it_inherited(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        a.sendall(FLOATS)
        child = os.fork()
        if not child:
            try:
                tag(a, 0x28)
                a.sendall(FLOATS)
                a.close()
            finally:
                os._exit(0)
        a.close()
        assert read_all(b) == FLOATS + BOUNDED.roundtrip(GRADIENT).tobytes()
        os.waitpid(child, 0)


def test_invalid_options_are_refused_before_and_after_connecting(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b, socket.socket(nic=nics[0].path) as fresh:
        for s in (a, fresh):
            for level, name, value in (
                (socket.SOL_NIC, socket.NIC_CODEC, b"bounded:99"),
                (socket.SOL_NIC, socket.NIC_CODEC, b"zip"),
                (socket.SOL_NIC, socket.NIC_CODEC, b"auto:raw"),
                (socket.SOL_NIC, socket.NIC_CODEC, b"\xff\xfe"),
                (socket.IPPROTO_IP, socket.IP_TOS, 256),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 0),
            ):
                with pytest.raises(OSError, match=r"\w{5}") as caught:
                    s.setsockopt(level, name, value)
                assert caught.value.errno == errno.EINVAL
            for level, name in ((socket.IPPROTO_TCP, socket.TCP_FASTOPEN), (socket.SOL_NIC, 99)):
                with pytest.raises(OSError, match="no option") as caught:
                    s.setsockopt(level, name, 1)
                assert caught.value.errno == errno.ENOPROTOOPT


def test_options_are_stored_and_returned(nics: list[Nic]) -> None:
    options = [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 4000),
    ]
    with nics[1].server() as listening:
        for level, name, value in options:
            listening.setsockopt(level, name, value)
        with nics[0].connect(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                for level, name, value in options:
                    assert accepted.getsockopt(level, name) == value
                    assert accepted.getsockopt(level, name, 4) == value.to_bytes(4, "little")
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 1 << 17
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == b"\1\0\0\0\0\0\0\0"
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\5\0\0\0")
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == b"\1\0\0\0\5\0\0\0"


def test_congestion_control_is_chosen_by_name(nics: list[Nic]) -> None:
    option = socket.IPPROTO_TCP, socket.TCP_CONGESTION
    with nics[1].server() as listening, nics[0].connect(listening.getsockname()) as s:
        assert s.getsockopt(*option, 16) == b"auto"
        assert socket.info(s).congestion == "auto: cubic"
        for name in ("bbr", "reno", "cubic"):
            s.setsockopt(*option, name.encode() + bytes(16 - len(name)))
            assert s.getsockopt(*option, 16) == name.encode()
            assert socket.info(s).congestion == name
        with pytest.raises(OSError, match="not one of the algorithms auto, cubic, reno, bbr") as caught:
            s.setsockopt(*option, b"vegas")
        assert caught.value.errno == errno.ENOENT
