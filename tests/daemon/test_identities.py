"""NICs that know each other by their keys: streams, rotations under way, revocation, and errors of one line."""

from __future__ import annotations

import errno
import secrets
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from softnic.commands import main
from softnic.ipc import control
from softnic.ipc.snapshot import PeerWay
from softnic.link.secure.identity import key_text, new_identity, read_identity
from softnicd.config import ConfigError
from tests.daemon.nics import WAIT_S, Nic, free_port, pair, read_all, serving, until
from tests.daemon.test_config import MINIMAL, configured
from tests.daemon.test_keys import key_file


class Known:
    """NICs with identities, each of which knows the keys of all others."""

    def __init__(self, directory: Path, count: int, *flags: str) -> None:
        self.files = [directory / f"node{number}.key" for number in range(count)]
        self.keys = [key_text(new_identity(str(file)).public[0]) for file in self.files]
        ports = [free_port() for _ in range(count)]
        self.nics = []
        for number in range(count):
            own = ["--identity", str(self.files[number])]
            for other in range(count):
                if other != number:
                    own += ["--peer-key", f"10.77.0.{other + 1}={self.keys[other]}"]
            self.nics.append(Nic(directory, number, ports, *own, *flags))


@pytest.fixture(params=[(), ("--queues", "2")], ids=["one queue", "two queues"])
def known(request: pytest.FixtureRequest) -> Iterator[Known]:
    with tempfile.TemporaryDirectory() as directory:
        made = Known(Path(directory), 2, *request.param)
        with serving(made.nics):
            yield made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def call(nic: Nic, request: control.Request) -> control.Reply:
    with nic.client() as client:
        reply: control.Reply = client.call(request)
        return reply


def ways(nic: Nic) -> list[PeerWay]:
    found = call(nic, control.QueryStats())
    assert isinstance(found, control.NicStats)
    return found.ways


def test_a_stream_crosses_and_stat_shows_the_keys(known: Known) -> None:
    a, b = pair(known.nics)
    data = secrets.token_bytes(1_000_000)
    with a, b:

        def write() -> None:
            a.sendall(data)
            a.close()

        writer = threading.Thread(target=write)
        writer.start()
        assert read_all(b) == data
        writer.join(WAIT_S)
    assert [way.key for way in ways(known.nics[0])] == [known.keys[1][:8]]
    for nic in known.nics:
        counters = nic.counters()
        assert counters["link_sessions"] >= 1
        assert not any(counters[name] for name in counters if name.startswith("link_dropped"))


def test_rotations_of_both_sides_lose_no_byte(known: Known, capsys: pytest.CaptureFixture[str]) -> None:
    """While a stream is under way, each side gets a new key, the other accepts it, and sessions by it begin."""
    a, b = pair(known.nics)
    data = secrets.token_bytes(8_000_000)
    got: list[bytes] = []
    with a, b:
        reader = threading.Thread(target=lambda: got.append(read_all(b)))
        reader.start()
        for step in range(8):
            a.sendall(data[step * 1_000_000 : (step + 1) * 1_000_000])
            if step in (2, 4):
                side = step // 2 - 1
                own, other = known.nics[side], known.nics[1 - side]
                assert main(["key", "rotate", str(known.files[side]), "--nic", own.path]) == 0
                newer, older = capsys.readouterr().out.split()
                assert older == known.keys[side]
                assert main(["key", "accept", own.ip, newer, "--nic", other.path]) == 0
            if step == 6:  # by the new keys alone
                for side in range(2):
                    assert main(["key", "revoke", known.keys[side], "--nic", known.nics[side].path]) == 0
                    assert main(["key", "revoke", known.keys[side], "--nic", known.nics[1 - side].path]) == 0
        a.close()
        reader.join(WAIT_S)
    assert got == [data]
    assert [way.key for way in ways(known.nics[0])] == [key_text(read_identity(str(known.files[1])).public[0])[:8]]
    assert known.nics[0].counters()["link_dropped_wrong_key"] == 0


def test_a_rotation_of_another_file_than_the_nics_is_an_error(
    known: Known, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.key"
    new_identity(str(other))
    assert main(["key", "rotate", str(other), "--nic", known.nics[0].path]) == 1
    assert "has its identity from another file" in capsys.readouterr().err


def test_a_revoked_key_is_out_at_once_and_its_connections_get_an_error(known: Known) -> None:
    a, b = pair(known.nics)
    with a, b:
        a.sendall(b"before")
        assert read_all(b, 6) == b"before"
        assert call(known.nics[0], control.RevokeKey(known.keys[1])) == control.Done()
        with pytest.raises(OSError, match="is revoked") as caught:
            a.recv(1)
        assert caught.value.errno == errno.EKEYREVOKED
        b.setblocking(False)
        b.send(b"x" * 1000)
        until(lambda: known.nics[0].counters()["link_dropped_revoked"] > 0)
        b.setblocking(True)
        b.settimeout(WAIT_S)
        with pytest.raises(OSError, match=r"lost|reset"):
            b.recv(1)
    until(lambda: "is revoked: its datagrams are dropped" in known.nics[0].log.read_text())
    assert [way.key for way in ways(known.nics[0])] == [""]


def test_a_stolen_network_key_opens_nothing(stack: ExitStack, tmp_path: Path) -> None:
    """A NIC at a peer's address that has the network's key and no identity gets no session."""
    stolen = key_file(tmp_path)
    made = Known(tmp_path, 2, "--key", str(stolen))
    thief = made.nics[1]
    at = thief.command.index("--identity")
    del thief.command[at : at + 4]
    stack.enter_context(serving(made.nics))
    with thief.client() as client:
        client.info()
    with pytest.raises(OSError, match="does not answer"):
        thief.connect((made.nics[0].ip, 5000))
    counters = made.nics[0].counters()
    assert counters["link_sessions"] == 0
    assert counters["link_dropped_wrong_key"] > 0


def test_a_nic_without_an_identity_takes_no_keys(stack: ExitStack, tmp_path: Path) -> None:
    key = key_text(new_identity(str(tmp_path / "x")).public[0])
    nic = Nic(tmp_path, 0, [free_port()])
    stack.enter_context(serving([nic]))
    for request, says in (
        (control.AddPeerKey("10.77.0.2", key), "--identity FILE"),
        (control.AddPeer("10.77.0.2", "127.0.0.1", 9, [key]), "--identity FILE"),
        (control.ReplaceIdentity(), "--identity FILE"),
        (control.RevokeKey(key), "does not encrypt"),
    ):
        with pytest.raises(OSError, match=says):
            call(nic, request)


def test_requests_with_what_is_no_key_are_refused(stack: ExitStack, tmp_path: Path) -> None:
    made = Known(tmp_path, 1)
    [nic] = made.nics
    stack.enter_context(serving([nic]))
    for request in (
        control.AddPeerKey("10.77.0.2", "x"),
        control.RevokeKey(key_text(bytes(32))),
        control.AddPeer("10.77.0.2", "127.0.0.1", 9, made.keys * 3),
    ):
        with pytest.raises(OSError, match=r"is not a public key|and not 3"):
            call(nic, request)
    made.files[0].write_text("x")
    with pytest.raises(OSError, match="does not contain one or two private keys"):
        call(nic, control.ReplaceIdentity())


class TestConfiguration:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "node.key"
        new_identity(str(path))
        return path

    def test_file_and_flags_are_equivalent(self, tmp_path: Path, file: Path) -> None:
        one, other = (key_text(new_identity(str(tmp_path / name)).public[0]) for name in "xy")
        toml = tmp_path / "node.toml"
        toml.write_text(
            f'ip = "10.77.0.1"\ncontrol = "/tmp/x.sock"\nidentity = "{file}"\nrequire_identity = true\n'
            f'revoked = ["{one}"]\n[peer_keys]\n"10.77.0.2" = ["{one}", "{other}"]\n"10.77.0.3" = "{other}"\n'
        )
        flags = ["--identity", str(file), "--require-identity", "--revoked", one]
        flags += ["--peer-key", f"10.77.0.2={one},{other}", "--peer-key", f"10.77.0.3={other}"]
        by_file, by_flags = configured("--config", str(toml)), configured(*MINIMAL, *flags)
        assert by_file.public_keys == by_flags.public_keys
        assert by_file.revoked_keys == by_flags.revoked_keys
        assert [len(keys) for keys in by_file.public_keys.values()] == [2, 1]
        assert by_flags.is_sealed
        assert by_flags.require_identity

    def test_errors_name_the_key(self, file: Path) -> None:
        mine, known = [*MINIMAL, "--identity", str(file)], key_text(read_identity(str(file)).public[0])
        for flags, says in (
            (
                [*MINIMAL, "--identity", "/no/key"],
                r"^identity: /no/key: No such file or directory; softnic key new FILE",
            ),
            ([*mine, "--peer-key", "10.77.0.2=x"], r"^peer_keys: 10.77.0.2: 'x' is not a public key"),
            ([*mine, "--peer-key", f"somewhere={known}"], r"^peer_keys: 'somewhere' is not an IPv4 address"),
            ([*mine, "--revoked", "x"], r"^revoked: 'x' is not a public key"),
            ([*MINIMAL, "--peer-key", "10.77.0.2=x"], r"^peer_keys: identity is not set"),
            ([*MINIMAL, "--require-identity"], r"^require_identity: identity is not set"),
        ):
            with pytest.raises(ConfigError, match=says):
                configured(*flags)
        file.chmod(0o644)
        with pytest.raises(ConfigError, match=r"^identity: .* is accessible to others"):
            configured(*mine)
