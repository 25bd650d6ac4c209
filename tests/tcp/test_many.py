"""Many connections over bad links: a sample of the runs of `python -m tests.tcp.many`."""

from __future__ import annotations

import pytest

from softnic.packet.segment import Tag
from softnic.tcp.connection import Connection
from tests.simulation.planted import leak_buffer_memory
from tests.tcp import many


@pytest.mark.parametrize("loss", many.LOSSES)
def test_nothing_is_lost_altered_or_left_behind(loss: float) -> None:
    world, _ = many.run_world(60, loss, seed=int(loss * 1000))
    assert sum(world.done.values()) == 60
    assert world.bytes > 0


def test_the_check_finds_altered_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: it flips a bit of the data read."""
    received = Connection.recv

    def altered(connection: Connection, limit: int) -> bytes:
        data = received(connection, limit)
        return bytes([data[0] ^ 1]) + data[1:] if data else data

    monkeypatch.setattr(Connection, "recv", altered)
    with pytest.raises(many.Failed, match="or others than"):
        many.run_world(5, 0.0, seed=1)


def test_the_check_finds_state_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    leak_buffer_memory(monkeypatch)
    big = many.Talk(bytes(9 << 20), b"", Tag(), "asker")
    monkeypatch.setattr(many, "talk_of", lambda _rng: big)
    with pytest.raises(many.Failed, match="budget"):
        many.run_world(1, 0.0, seed=1)


def test_all_connections_are_run_with_every_loss_rate() -> None:
    planned = list(many.worlds(100_000, seed=3))
    assert sum(size for size, _, _ in planned) == 100_000
    assert {loss for _, loss, _ in planned} == set(many.LOSSES)
    assert len({seed for _, _, seed in planned}) == len(planned)
