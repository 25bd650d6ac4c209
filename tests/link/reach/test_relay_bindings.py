"""The relay ports of other nodes that a node uses: when it binds its address there."""

from __future__ import annotations

from softnic.link.reach.card import RelayPort
from softnic.link.reach.relay_bindings import BIND_S, REPEAT_S, RelayBindings

PORT, OTHER = RelayPort(0, 9500), RelayPort(0, 9501)
ADDRESS = ("192.0.2.1", 9500)


def test_an_address_is_bound_again_after_a_while_and_at_once_if_it_may_have_changed() -> None:
    bindings = RelayBindings()
    bindings.set([(PORT, ADDRESS, b"")])
    assert [port for port, _ in bindings.due(0.0)] == [PORT]
    bindings.on_bound(PORT, 0.1)
    assert bindings.is_bound(PORT)
    assert bindings.due(1.0) == []
    bindings.refresh(PORT)
    bindings.refresh(OTHER)
    assert not bindings.is_bound(PORT)
    assert [port for port, _ in bindings.due(1.0)] == [PORT]
    assert bindings.next_time() == 1.0 + REPEAT_S
    bindings.on_bound(PORT, 1.1)
    assert bindings.next_time() == 1.1 + BIND_S
