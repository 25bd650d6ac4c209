"""NICs with a key: unchanged streams, encrypted frames, and errors of one line."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket as plain
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from softnic import codecs, socket
from softnic.capture import reader
from softnic.commands.capture import recording
from softnic.ipc import control
from softnicd.config import ConfigError
from tests.daemon.nics import WAIT_S, Nic, pair, read_all, running, until
from tests.daemon.test_config import MINIMAL, configured

DIGITS = "0123456789abcdef" * 4


def key_file(directory: Path, digits: str = DIGITS) -> Path:
    path = directory / f"{digits[:8]}.key"
    path.touch(0o600)
    path.write_text(digits)
    return path


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[list[Nic]]:
    with running(2, "--key", str(key_file(tmp_path, secrets.token_hex(32))), "--offload", "0x28=bounded:10") as nics:
        yield nics


def test_streams_are_the_same_as_without_a_key(sealed: list[Nic]) -> None:
    a, b = pair(sealed)
    random = np.random.default_rng(1)
    raw, floats = random.bytes(3_000_000), random.normal(0, 0.01, 300_000).astype(np.float32)
    with a, b:

        def write() -> None:
            a.sendall(raw)
            a.setsockopt(plain.IPPROTO_IP, plain.IP_TOS, 0x28)
            a.sendall(floats.tobytes())
            a.shutdown(plain.SHUT_WR)

        writer = threading.Thread(target=write)
        writer.start()
        got = read_all(b)
        writer.join(WAIT_S)
    codec = codecs.get("bounded:10")
    assert got == raw + codec.decode(codec.encode(floats), floats.size).tobytes()
    for nic in sealed:
        counters = nic.counters()
        assert counters["link_sessions"] >= 1
        assert not any(counters[name] for name in counters if name.startswith("link_dropped"))


def test_a_capture_shows_plain_frames(sealed: list[Nic], tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    secret = b"the loss was 0.25"
    with recording([nic.path for nic in sealed], path):
        a, b = pair(sealed)
        with a, b:
            a.sendall(secret)
            assert read_all(b, len(secret)) == secret
    seen = reader.read(path)
    frames = [
        seen.data[offset : offset + length].tobytes()
        for offset, length in zip(seen.offset.tolist(), seen.captured.tolist(), strict=True)
    ]
    assert sum(secret in frame for frame in frames) >= 2  # at the sender and at the receiver


def test_the_wire_is_encrypted(sealed: list[Nic]) -> None:
    """A relay between the NICs sees every datagram: none contains written data, none is plain VXLAN."""
    secret = b"the loss was 0.25"
    seen: list[bytes] = []
    with relays(sealed, seen) as nics:
        a, b = pair(nics)
        with a, b:
            a.sendall(secret * 100)
            assert read_all(b, len(secret) * 100) == secret * 100
    assert len(seen) > 5
    assert {datagram[0] for datagram in seen} == {0x10, 0x11}
    assert not any(secret in datagram for datagram in seen)


@contextlib.contextmanager
def relays(nics: list[Nic], seen: list[bytes]) -> Iterator[list[Nic]]:
    """Restart the NICs with all datagrams between them passing through this process."""
    with contextlib.ExitStack() as stack:
        wires = [nic.command[nic.command.index("--wire") + 1] for nic in nics]
        places = [(host, int(port)) for host, _, port in (wire.partition(":") for wire in wires)]
        sockets = [stack.enter_context(plain.socket(plain.AF_INET, plain.SOCK_DGRAM)) for _ in nics]
        for here in sockets:
            here.bind(("127.0.0.1", 0))
            here.settimeout(0.1)
        stop = threading.Event()

        def relay(number: int) -> None:
            """Forward datagrams of one node to the other, from the socket that the other knows as its peer."""
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    datagram = sockets[number].recv(65536)
                    seen.append(datagram)
                    sockets[1 - number].sendto(datagram, places[1 - number])

        threads = [threading.Thread(target=relay, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            for number, nic in enumerate(nics):
                nic.stop()
                ip, _, port = nic.command[-1].partition("=")
                nic.command[-1] = f"{ip}=127.0.0.1:{sockets[number].getsockname()[1]}"
                assert port
                nic.start()
            yield nics
        finally:
            stop.set()
            for thread in threads:
                thread.join(WAIT_S)


def test_a_restarted_nic_gets_a_new_session(sealed: list[Nic]) -> None:
    a, b = pair(sealed)
    with a, b:
        a.sendall(b"before")
        assert read_all(b, 6) == b"before"
        sealed[1].stop(signal.SIGKILL)
        sealed[1].start()
        opened, accepted = pair(sealed)
        with opened, accepted:
            opened.sendall(b"after")
            assert read_all(accepted, 5) == b"after"


def test_a_datagram_with_another_key_is_logged_by_the_receiver(sealed: list[Nic], tmp_path: Path) -> None:
    """By the NIC that had a session when its peer restarted with another key, and by a NIC without a key."""
    a, b = pair(sealed)
    a.close()
    b.close()
    sealed[1].stop()
    sealed[1].command[sealed[1].command.index("--key") + 1] = str(key_file(tmp_path))
    sealed[1].start()
    assert_drops_another_key(sealed[0], sealed[1])
    sealed[0].stop()
    sealed[0].start()
    with socket.socket(nic=sealed[0].path) as s:
        s.setblocking(False)
        with pytest.raises(BlockingIOError):
            s.connect((sealed[1].ip, 5000))
        assert_drops_another_key(sealed[1], sealed[0])
        assert [nic.counters()["link_sessions"] for nic in sealed] == [0, 0]


def assert_drops_another_key(nic: Nic, other: Nic) -> None:
    until(lambda: nic.counters()["link_dropped_wrong_key"] > 0)
    wire = other.command[other.command.index("--wire") + 1]
    name = nic.command[nic.command.index("--name") + 1]
    said = f"softnicd {name}: {wire} has another key than this NIC, or is another node: its datagrams are dropped"
    until(lambda: said in nic.log.read_text().splitlines())
    with nic.client() as client:
        stats = client.call(control.QueryStats())
    assert isinstance(stats, control.NicStats)
    assert said.partition(": ")[2] in [event.text for event in stats.events]


class TestConfiguration:
    def test_a_key_may_be_in_a_file_or_in_the_configuration(self, tmp_path: Path) -> None:
        assert configured(*MINIMAL).network_key is None
        key = bytes.fromhex(DIGITS)
        assert configured(*MINIMAL, "--key", str(key_file(tmp_path))).network_key == key
        file = tmp_path / "node.toml"
        for value in (DIGITS, key_file(tmp_path)):
            file.touch(0o600)
            file.write_text(f'ip = "10.77.0.1"\ncontrol = "x"\nkey = "{value}"\n')
            assert configured("--config", str(file)).network_key == key

    def test_a_key_readable_by_others_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"^key: every user can read a command line"):
            configured(*MINIMAL, "--key", DIGITS)
        file = tmp_path / "node.toml"
        file.write_text(f'ip = "10.77.0.1"\ncontrol = "x"\nkey = "{DIGITS}"\n')
        file.chmod(0o644)
        with pytest.raises(ConfigError, match=r"node.toml: key: other users may read this file"):
            configured("--config", str(file))
        path = key_file(tmp_path)
        path.chmod(0o640)
        with pytest.raises(ConfigError, match=r"key: .* is accessible to others than its owner: chmod 600 /") as caught:
            configured(*MINIMAL, "--key", str(path))
        assert "\n" not in str(caught.value)

    def test_the_error_names_a_missing_key_file(self) -> None:
        with pytest.raises(ConfigError, match=r"key: /no/key: No such file or directory; .* makes a key$"):
            configured(*MINIMAL, "--key", "/no/key")
        with pytest.raises(ConfigError, match=r"key: /proc: Is a directory$"):
            configured(*MINIMAL, "--key", "/proc")

    def test_no_error_and_no_repr_of_a_configuration_shows_the_key(self, tmp_path: Path) -> None:
        file = tmp_path / "node.toml"
        file.touch(0o600)
        file.write_text(f'ip = "10.77.0.1"\ncontrol = "x"\nkey = "{DIGITS}"\nmtu = 1\n')
        with pytest.raises(ConfigError) as caught:
            configured("--config", str(file))
        assert DIGITS not in str(caught.value)
