"""The preloaded library with a NIC whose replies the test chooses: it ends meanwhile, or a stream is still closing."""

from __future__ import annotations

import contextlib
import json
import socket as plain
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from softnic import preload
from tests.daemon.nics import WAIT_S

WAITS_FOR = ("ESTABLISHED", "CLOSE-WAIT", "FIN-WAIT-1", "CLOSING", "LAST-ACK")
"""States in which bytes, or a FIN, are not acknowledged yet."""
OTHERS = ("SYN-SENT", "SYN-RECEIVED", "FIN-WAIT-2", "TIME-WAIT", "CLOSED", "LISTEN", "BOUND")
OPENED = {"type": "Opened", "stream": 7, "address": "0.0.0.0", "port": 0}

Answer = Callable[[dict[str, object]], dict[str, object] | None]
"""The reply to a request; None: the connection is closed instead."""


def run(path: Path, code: str, answer: Answer, ends: list[plain.socket] | None = None) -> str:
    """Return what a program prints whose NIC answers so. `ends` are the NIC's ends of its streams, while it runs."""
    kept = [] if ends is None else ends

    def receive(connection: plain.socket) -> bytes:
        request, descriptors, _, _ = plain.recv_fds(connection, 4096, 2)
        kept.extend(plain.socket(fileno=descriptor) for descriptor in descriptors)
        return request

    def serve(connection: plain.socket) -> None:
        with connection:
            while request := receive(connection):
                reply = answer(json.loads(request))
                if reply is None:
                    return
                connection.send(json.dumps(reply, separators=(",", ":")).encode())

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with plain.socket(plain.AF_UNIX, plain.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        threading.Thread(target=accept, daemon=True).start()
        command = [sys.executable, "-S", "-c", code]
        environment = preload.environment(path)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
        listening.shutdown(plain.SHUT_RDWR)
    for end in kept:
        end.close()
    assert not done.stderr, done.stderr
    return done.stdout


def test_a_request_goes_to_the_nic_that_replaced_another(tmp_path: Path) -> None:
    """The first connection ends at its second request, for which another is made, and at no third one."""
    streams = 0

    def answer(request: dict[str, object]) -> dict[str, object] | None:
        nonlocal streams
        if request["type"] == "Open":
            streams += 1
            return {**OPENED, "stream": streams}
        return {"type": "Done"} if request["type"] == "ShareConnection" else None

    code = """if True:
        import select, socket
        first = socket.socket()
        try:
            first.getsockname()  # it may have been executed, so it is not sent again
        except OSError as error:
            print(error.errno)
        second = socket.socket()
        ended = select.poll()
        ended.register(500, 0)
        copy = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, 500)
        copy.shutdown(socket.SHUT_RDWR)
        copy.detach()
        assert ended.poll(60000)
        print(socket.socket().fileno() > second.fileno() > first.fileno())"""
    assert run(tmp_path / "nic", code, answer) == "100\nTrue\n"


@pytest.mark.parametrize("state", WAITS_FOR + OTHERS)
def test_a_close_with_linger_waits_for_what_is_not_acknowledged(tmp_path: Path, state: str) -> None:
    queries = 0

    def answer(request: dict[str, object]) -> dict[str, object]:
        nonlocal queries
        if request["type"] == "Open":
            return OPENED
        if request["type"] == "QueryOption":
            return {"type": "OptionValue", "value": 601}
        if request["type"] != "QueryStream":
            return {"type": "Done"}
        queries += 1
        now = state if queries < 3 else "CLOSED"
        return {"type": "StreamInfo", "stream": 7, "state": now, "local": ["10.77.0.1", 5], "closed": True}

    code = """if True:
        import socket, struct
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
        s.close()"""
    assert run(tmp_path / "nic", code, answer) == ""
    assert queries == (3 if state in WAITS_FOR else 1)


NAMES = """if True:
    import os, socket
    os.environ["SOFTNIC_TAGS"] = ",".join(f"{port}={'c' * port}" for port in (62, 63, 64, 65))
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("10.77.0.2", PORT))"""


@pytest.mark.parametrize("length", [62, 63, 64, 65])
def test_a_port_has_a_codec_of_up_to_63_bytes(tmp_path: Path, length: int) -> None:
    chosen = []

    def answer(request: dict[str, object]) -> dict[str, object]:
        if request["type"] == "SetOption":
            chosen.append(request["value"])
        if request["type"] == "QueryOption":
            return {"type": "OptionValue", "value": 0}
        if request["type"] == "QueryStream":
            return {"type": "StreamInfo", "stream": 7, "state": "BOUND", "local": ["0.0.0.0", 0]}
        return OPENED if request["type"] == "Open" else {"type": "Done"}

    assert run(tmp_path / "nic", NAMES.replace("PORT", str(length)), answer) == ""
    assert chosen == (["c" * length, 0x28] if length < 64 else [])


def test_names_in_options_have_up_to_63_bytes_and_64_are_sent(tmp_path: Path) -> None:
    """A longer one is refused here, as no NIC has a codec of that name."""
    kept = []

    def answer(request: dict[str, object]) -> dict[str, object]:
        if request["type"] == "SetOption":
            kept.append(request["value"])
        if request["type"] == "QueryOption":
            return {"type": "OptionValue", "value": kept[-1]}
        return OPENED if request["type"] == "Open" else {"type": "Done"}

    code = """if True:
        import socket
        s = socket.socket()
        for length in (0, 1, 62, 63, 64, 65):
            try:
                s.setsockopt(0x4E49, 1, b"c" * length)
                print(len(s.getsockopt(0x4E49, 1, 200).rstrip(bytes(1))), len(s.getsockopt(0x4E49, 1, 10)))
            except OSError as error:
                print(error.errno)"""
    assert run(tmp_path / "nic", code, answer) == "0 1\n1 2\n62 10\n63 10\n63 10\n22\n"
    assert kept == ["c" * length for length in (0, 1, 62, 63, 64)]


INTERRUPTED = """if True:
    import ctypes, errno, signal, socket, struct, threading
    from pathlib import Path
    call = ctypes.CDLL(None, use_errno=True).connect
    s, ended, quiet = socket.socket(), threading.Event(), threading.Event()
    main, status = threading.main_thread(), Path(f"/proc/self/task/{threading.get_native_id()}/status")

    def waits():  # how often the main thread has begun to wait
        return int(status.read_text().partition("\\nvoluntary_ctxt_switches:")[2].split()[0])

    def interrupt():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        while s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO) != 2:  # SYN-SENT
            pass
        for _ in range(3):  # the first one may come before it waits
            before = waits()
            if not ended.is_set():
                signal.pthread_kill(main.ident, signal.SIGALRM)
            while waits() == before and not ended.is_set():
                pass
        quiet.set()
        if not ended.is_set():
            s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # at which the NIC connects it

    def connect():
        address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(5000), socket.inet_aton("10.77.0.2"))
        return errno.errorcode[ctypes.get_errno()] if call(s.fileno(), address, 16) else 0

    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, not RESTARTS)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would end any call
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", LIMIT_S, 0))
    thread = threading.Thread(target=interrupt)
    thread.start()
    print(connect())
    ended.set()
    quiet.wait()
    print(connect(), connect())
    thread.join()"""


@pytest.mark.parametrize(
    ("restarts", "limit_s", "outcome"), [(0, 0, "EINTR"), (0, 600, "EINTR"), (1, 0, "0"), (1, 600, "EINTR")]
)
def test_signals_end_a_connect_or_not_as_on_linux(tmp_path: Path, restarts: int, limit_s: int, outcome: str) -> None:
    """As connect(2) and signal(7) say: with SA_RESTART and without a limit it goes on; else another call waits for the
    outcome.
    """
    state = "BOUND"
    ends: list[plain.socket] = []

    def answer(request: dict[str, object]) -> dict[str, object]:
        nonlocal state
        if request["type"] == "QueryStream":
            addresses = {"local": ["10.77.0.1", 5], "peer": None if state == "BOUND" else ["10.77.0.2", 5000]}
            reply: dict[str, object] = {"type": "StreamInfo", "stream": 7, "state": state, **addresses}
            if request["clear"] and state == "SYN-SENT":  # it is asked for the outcome, which is there soon after
                connect()
            return reply
        if request["type"] == "Connect":
            state = "SYN-SENT"
        if request["type"] == "SetOption":
            connect()
        return OPENED if request["type"] == "Open" else {"type": "Done"}

    def connect() -> None:
        nonlocal state
        state = "ESTABLISHED"
        ends[0].setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while ends[0].recv(1 << 16):
                pass

    code = INTERRUPTED.replace("RESTARTS", str(restarts)).replace("LIMIT_S", str(limit_s))
    after = "0 EISCONN" if outcome == "EINTR" else "EISCONN EISCONN"
    assert run(tmp_path / "nic", code, answer, ends) == f"{outcome}\n{after}\n"
