"""NICs that meet through a server on loopback: their peers, streams, counters, and errors of one line."""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from softnic.ipc import control
from softnic.ipc.snapshot import MeetingInfo
from softnic.link.reach.token import Token
from softnic.link.secure.identity import new_identity
from softnicd.config import TOKEN_VARIABLE, Config, ConfigError, load, parser
from softnicd.fresh_identity import with_identity
from tests.daemon.nics import WAIT_S, Nic, pair, read_all, serving, until
from tests.meeting.served import private_file, served, token_for


class MeetingNic(Nic):
    """A NIC without configured peers."""

    def __init__(self, directory: Path, number: int, token: Token, *flags: str) -> None:
        file = private_file(directory / f"token{number}", token.text())
        self.set_up(directory, number, "127.0.0.1:0", {}, ["--meet", str(file), *flags])

    def stats(self) -> control.NicStats:
        with self.client() as client:
            found = client.call(control.QueryStats())
        assert isinstance(found, control.NicStats)
        return found

    def meeting(self) -> MeetingInfo:
        found = self.stats().meeting
        assert found is not None
        return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def directory(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory()))


def met(nics: list[MeetingNic]) -> bool:
    return all(nic.meeting().direct == len(nics) - 1 for nic in nics)


@pytest.mark.parametrize("flags", [(), ("--queues", "2")], ids=["one queue", "two queues"])
def test_nics_of_a_job_become_peers_and_a_stream_outlives_the_server(
    stack: ExitStack, directory: Path, flags: tuple[str, ...]
) -> None:
    address, process = stack.enter_context(served(directory))
    token = token_for(address, 2)
    own = ["--identity", str(directory / "node0.key"), *flags]
    new_identity(own[1])
    nics = [MeetingNic(directory, 0, token, *own), MeetingNic(directory, 1, token, *flags)]
    stack.enter_context(serving(nics))
    until(lambda: met(nics))
    infos = [nic.meeting() for nic in nics]
    assert [(info.nodes, info.known, info.number, info.waiting) for info in infos] == [(2, 2, 0, []), (2, 2, 1, [])]
    assert all(info.registered and not info.tcp and not info.refusal for info in infos)
    a, b = pair(nics)
    data = secrets.token_bytes(3_000_000)
    with a, b:

        def write() -> None:
            a.sendall(data[:1_000_000])
            process.terminate()
            process.wait(WAIT_S)
            a.sendall(data[1_000_000:])
            a.close()

        writer = threading.Thread(target=write)
        writer.start()
        assert read_all(b) == data
        writer.join(WAIT_S)
    for nic in nics:
        stats = nic.stats()
        assert [len(way.key) for way in stats.ways] == [8]
        assert stats.counters["meeting_received"] > 0
        dropped = {name: stats.counters[name] for name in stats.counters if name.startswith("meeting_dropped")}
        assert not any(dropped.values()), dropped
        assert stats.counters["link_dropped_malformed"] == 0
        # First hellos may precede what the server says of their sender; answers of servers do not count.
        assert 0 <= stats.counters["link_dropped_unknown_source"] <= 3 < stats.counters["meeting_received"]


def test_a_node_that_claims_a_number_twice_is_told_another(stack: ExitStack, directory: Path) -> None:
    address, _ = stack.enter_context(served(directory))
    token = token_for(address, 2)
    for name in "ab":
        (directory / name).mkdir()
    nics = [MeetingNic(directory / name, 0, token) for name in "ab"]
    stack.enter_context(serving(nics))
    until(lambda: any("another node of the job has 10.77.0.1" in nic.log.read_text() for nic in nics))
    until(lambda: sorted(nic.meeting().number for nic in nics) == [0, 1])


def test_the_token_is_refused_where_others_can_read_it(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = token_for(("127.0.0.1", 1), 2).text()
    flags = ["--ip", "10.77.0.1", "--control", "/tmp/x.sock"]

    def loaded(*more: str) -> Config:
        return load(parser().parse_args([*flags, *more]))

    with pytest.raises(ConfigError, match="every user can read a command line"):
        loaded("--meet", text)
    readable = private_file(directory / "token", text)
    assert loaded("--meet", str(readable)).token == Token.parse(text)
    readable.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        loaded("--meet", str(readable))
    with pytest.raises(ConfigError, match=r"softnic meet token.* makes a token"):
        loaded("--meet", str(directory / "missing"))
    with pytest.raises(ConfigError, match="SOFTNIC_TOKEN is not set"):
        loaded("--meet")
    monkeypatch.setenv(TOKEN_VARIABLE, text)
    assert loaded("--meet").token == Token.parse(text)
    assert loaded().token is None
    file = private_file(directory / "node.toml", f'meet = "{text}"\n')
    assert loaded("--config", str(file)).token == Token.parse(text)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="meet: other users may read this file"):
        loaded("--config", str(file))


def test_a_node_outside_the_overlay_is_an_error(directory: Path) -> None:
    file = private_file(directory / "token", token_for(("127.0.0.1", 1), 2).text())
    given = parser().parse_args(["--ip", "192.0.2.1", "--control", "/tmp/x.sock", "--meet", str(file)])
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1 is no address of a job's node"):
        load(given)


def test_a_nic_without_an_identity_has_a_fresh_one_that_is_in_no_directory(directory: Path) -> None:
    file = private_file(directory / "token", token_for(("127.0.0.1", 1), 2).text())
    given = parser().parse_args(["--ip", "10.77.0.1", "--control", "/tmp/x.sock", "--meet", str(file)])
    configs = [with_identity(load(given)) for _ in range(2)]
    keys = set()
    for config in configs:
        identity = config.node_identity
        assert identity is not None
        keys |= {*identity.public}
        os.close(int(config.identity.rpartition("/")[2]))
    assert len(keys) == 2
    assert [each.name for each in directory.iterdir()] == ["token"]


def test_a_node_that_relays_counts_it_and_leaves_its_place_when_it_ends(stack: ExitStack, directory: Path) -> None:
    address, _ = stack.enter_context(served(directory))
    token = token_for(address, 2)
    other = MeetingNic(directory, 1, token)
    stack.enter_context(serving([other]))
    with serving([relaying := MeetingNic(directory, 0, token, "--relay")]):
        until(lambda: met([relaying, other]))
        until(lambda: relaying.stats().counters["relay_nodes"] == 1)  # the other one has found it in the card
        assert relaying.stats().counters["relay_server_dropped_forged"] == 0
    third = MeetingNic(directory, 2, token)  # the place of a node that has ended is free at once
    stack.enter_context(serving([third]))
    until(lambda: third.meeting().registered)
    assert third.meeting().refusal == ""


@pytest.mark.parametrize("flags", [("--relay",), ("--reachable-at", "192.0.2.1:4789")])
def test_what_a_job_needs_is_refused_without_one(flags: tuple[str, ...]) -> None:
    arguments = parser().parse_args(["--ip", "10.77.0.1", "--control", "/tmp/n.sock", *flags])
    with pytest.raises(ConfigError, match="it is for the nodes of a job, but meet is not set"):
        load(arguments)
