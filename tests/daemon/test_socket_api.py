"""The standard module's calling conventions: types, addresses, options, closed sockets, errors."""

from __future__ import annotations

import errno
import gc
import os
import socket as stdlib
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softnic import codecs, socket
from tests.daemon.nics import WAIT_S, Nic, pair, read_all

pytestmark = pytest.mark.usefixtures("nic")


def open_descriptors() -> int:
    gc.collect()  # what tests before this one left closes its descriptors now
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def nic(nics: list[Nic], monkeypatch: pytest.MonkeyPatch) -> Nic:
    """The first node, set as SOFTNIC_NIC."""
    monkeypatch.setenv("SOFTNIC_NIC", nics[0].path)
    return nics[0]


# -- making sockets


def test_the_type_may_carry_flags() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as s:
        assert s.type == socket.SOCK_STREAM
        assert s.gettimeout() == 0
        assert not s.get_inheritable()
    with socket.socket(type=socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as s:
        assert s.gettimeout() is None


def test_fileno_is_checked_as_in_the_standard_module() -> None:
    with pytest.raises(ValueError, match="negative"):
        socket.socket(fileno=-1)
    with pytest.raises(TypeError):
        socket.socket(fileno="3")  # type: ignore[arg-type]
    with socket.socket() as s:
        number = s.fileno()
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        socket.socket(fileno=number)
    assert caught.value.errno == errno.EBADF
    with Path(os.devnull).open() as file, pytest.raises(OSError, match="not a NIC's stream") as caught:
        socket.socket(fileno=file.fileno())
    assert caught.value.errno == errno.ENOTSOCK


def test_subclasses_may_override_connect_and_bind(nic: Nic) -> None:
    class Counting(socket.socket):
        calls = 0

        def connect(self, address: object, /) -> None:
            type(self).calls += 1
            super().connect(address)

        def bind(self, address: object, /) -> None:
            type(self).calls += 1
            super().bind(address)

    with Counting() as listening, Counting() as s:
        listening.listen()
        assert s.connect_ex((nic.ip, listening.getsockname()[1])) == 0
    assert Counting.calls == 0


def test_a_replaced_class_is_what_create_connection_makes(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self, *arguments: object) -> None:
            pass

        def settimeout(self, value: float | None) -> None:
            pass

        def connect(self, _: object) -> None:
            raise TimeoutError("timed out")

        def close(self) -> None:
            pass

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(TimeoutError):
        socket.create_connection((nic.ip, 1), 1)


def test_the_text_of_a_socket_is_that_of_the_standard_class(nic: Nic) -> None:
    with socket.create_server((nic.ip, 0)) as listening, socket.create_connection(listening.getsockname()) as s:
        for each in (listening, s):
            assert repr(each) == stdlib.socket.__repr__(each)
        assert f"raddr={listening.getsockname()}>" in repr(s)


# -- closed and detached


def test_a_closed_or_detached_socket_has_neither_names_nor_options(nic: Nic) -> None:
    closed, detached = socket.socket(), socket.socket()
    closed.bind(("", 0))
    closed.close()
    descriptor = detached.detach()
    try:
        for s in (closed, detached):
            for call in (
                s.getsockname,
                s.getpeername,
                s.accept,
                lambda s=s: s.bind(("", 0)),
                lambda s=s: s.listen(),
                lambda s=s: s.connect((nic.ip, 1)),
                lambda s=s: s.recv(1),
                lambda s=s: s.send(b"x"),
                lambda s=s: s.shutdown(socket.SHUT_RDWR),
                lambda s=s: s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE),
                lambda s=s: s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28),
            ):
                with pytest.raises(OSError, match="Bad file descriptor") as caught:
                    call()
                assert caught.value.errno == errno.EBADF
            assert s.connect_ex((nic.ip, 1)) == errno.EBADF
            assert "laddr" not in repr(s)
            assert s.detach() == -1
        with socket.socket(fileno=descriptor) as again:
            again.bind(("", 0))
    finally:
        detached.close()


def test_a_closed_socket_keeps_no_descriptor() -> None:
    with socket.socket() as warm_up:
        warm_up.bind(("", 0))
    before = open_descriptors()
    sockets = [socket.socket() for _ in range(10)]
    for s in sockets:
        s.close()
    assert open_descriptors() == before
    first = socket.socket()
    second = first.dup()
    first.close()
    second.bind(("", 0))  # the NIC's end is there as long as one of them is open
    second.close()
    assert open_descriptors() == before


def test_threads_detach_concurrently() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                descriptors = [socket.socket().detach() for _ in range(4)]
                for descriptor in descriptors:
                    socket.socket(fileno=descriptor).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_cost_of_a_detach_is_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = [socket.socket().detach() for _ in range(100)]
    calls: list[int] = []
    fstat = os.fstat

    def counted(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", counted)
    descriptors.append(socket.socket().detach())
    assert len(calls) <= 4
    monkeypatch.undo()
    for descriptor in descriptors:
        socket.socket(fileno=descriptor).close()


def test_each_detached_duplicate_keeps_the_stream(nics: list[Nic]) -> None:
    a, b = pair(nics)
    peer = a.getpeername()
    first, second = a.dup().detach(), a.dup().detach()
    a.close()
    os.close(second)
    for _ in range(8):
        socket.socket(nic=nics[0].path).detach()
    with b, socket.socket(fileno=first) as again:
        assert again.getpeername() == peer


# -- addresses


def test_create_connection_accepts_the_standard_arguments(nic: Nic) -> None:
    with socket.create_server(("", 0)) as listening:
        port = listening.getsockname()[1]
        addresses: list[tuple[Any, Any]] = [(nic.ip, str(port)), (nic.ip, np.int64(port)), (None, port)]
        for address in addresses:
            with socket.create_connection(address, socket._GLOBAL_DEFAULT_TIMEOUT) as s:
                assert s.getpeername() == (nic.ip, port)
                assert s.gettimeout() is None
            listening.accept()[0].close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((nic.ip, "discard"))
        with pytest.raises(socket.gaierror):
            socket.create_connection((nic.ip, "no-such-service"))
        with pytest.raises(ExceptionGroup) as group:
            socket.create_connection((nic.ip, 9), all_errors=True)
        assert [type(error) for error in group.value.exceptions] == [ConnectionRefusedError]
        assert socket._GLOBAL_DEFAULT_TIMEOUT is stdlib._GLOBAL_DEFAULT_TIMEOUT  # type: ignore[attr-defined]


def test_a_default_timeout_leaves_a_blocking_descriptor_blocking(nics: list[Nic]) -> None:
    with nics[1].server() as server:
        stdlib.setdefaulttimeout(WAIT_S)
        try:
            a = socket.create_connection(server.getsockname(), timeout=None, nic=nics[0].path)
        finally:
            stdlib.setdefaulttimeout(None)
        with a:
            assert os.get_blocking(a.fileno())


def test_connect_takes_integers_and_bytes_and_nothing_else(nic: Nic) -> None:
    with socket.create_server((nic.ip, 0)) as listening, socket.socket() as s:
        for wrong in ((nic.ip, "80"), (nic.ip, 80.0), (None, 80), nic.ip, (nic.ip,)):
            with pytest.raises(TypeError):
                s.connect(wrong)
            with pytest.raises(TypeError):
                s.connect_ex(wrong)
        s.connect((nic.ip.encode(), np.int64(listening.getsockname()[1])))
        assert s.getpeername() == listening.getsockname()


def test_errors_name_the_address() -> None:
    with socket.socket() as s, pytest.raises(OSError, match="one host") as caught:
        s.connect(("224.0.0.1", 80))
    assert caught.value.errno == errno.EHOSTUNREACH
    with pytest.raises(OSError, match=r"attempting to bind on address \('192"):
        socket.create_server(("192.0.2.1", 0))


# -- options


def test_options_have_linux_s_values_before_they_are_set() -> None:
    with socket.socket() as s:
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 7200
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 75
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4) == struct.pack("i", 9)
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER) == 0
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == bytes(8)


def test_so_linger_has_the_format_of_linux() -> None:
    option = socket.SOL_SOCKET, socket.SO_LINGER
    with socket.socket() as s:
        for wrong in (1, 0, b"\1\0\0\0"):
            with pytest.raises(OSError, match="two integers") as caught:
                s.setsockopt(*option, wrong)
            assert caught.value.errno == errno.EINVAL
        s.setsockopt(*option, struct.pack("ii", 1, 0))
        assert s.getsockopt(*option) == 1
        assert s.getsockopt(*option, 8) == struct.pack("ii", 1, 0)


def test_an_option_s_value_is_an_integer_or_bytes() -> None:
    option = socket.IPPROTO_TCP, socket.TCP_NODELAY
    with socket.socket() as s:
        for one in (1, True, np.int64(1), struct.pack("i", 1), bytearray(struct.pack("i", 1))):
            s.setsockopt(*option, 0)
            s.setsockopt(*option, one)
            assert s.getsockopt(*option) == 1
        for wrong in (1.5, "1", None):
            with pytest.raises(TypeError):
                s.setsockopt(*option, wrong)
        with pytest.raises(OverflowError, match="TCP_NODELAY"):
            s.setsockopt(*option, 1 << 40)
        with pytest.raises(OSError, match="4 bytes") as caught:
            s.setsockopt(*option, b"\1")
        assert caught.value.errno == errno.EINVAL
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, b"\x28")
        assert s.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x28


def test_the_error_names_an_unsupported_option() -> None:
    with socket.socket() as s:
        for call in (s.getsockopt, lambda level, name: s.setsockopt(level, name, 1)):
            with pytest.raises(OSError, match="no option TCP_FASTOPEN at level IPPROTO_TCP") as caught:
                call(socket.IPPROTO_TCP, socket.TCP_FASTOPEN)
            assert caught.value.errno == errno.ENOPROTOOPT
            with pytest.raises(OSError, match="no option SO_BINDTODEVICE at level SOL_SOCKET"):
                call(socket.SOL_SOCKET, socket.SO_BINDTODEVICE)
            with pytest.raises(OSError, match="no option 99 at level SOL_NIC"):
                call(socket.SOL_NIC, 99)


def test_errors_about_codecs_name_auto() -> None:
    for text in ("zip", "zip:3", "", "bounded 10"):
        with pytest.raises(codecs.CodecError, match="auto"):
            codecs.get(text)


def test_bytes_still_pass_after_the_descriptor_has_moved(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with b, socket.socket(fileno=a.detach()) as moved:
        moved.settimeout(WAIT_S)
        moved.sendall(b"there")
        assert read_all(b, 5) == b"there"
