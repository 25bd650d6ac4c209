"""A connection from SYN to TIME-WAIT, as the application sees it."""

from __future__ import annotations

from softnic.packet.segment import Tag
from softnic.tcp.connection import Closed, Established, Readable
from softnic.tcp.listener import AcceptReady
from softnic.tcp.state import State
from tests.tcp.lab import Lab, Pump, Wire, accept
from tests.tcp.script import state_of


def test_a_connection_from_its_first_to_its_last_segment() -> None:
    lab = Lab()
    listener = lab.b.host.listen(0, 80, 5, lab.now)
    client = lab.a.host.connect(lab.b.ip, 80, lab.now)
    lab.run(limit_s=0.1)
    assert lab.a.take_events() == [Established(client)]
    assert lab.b.take_events() == [AcceptReady(listener)]
    server = accept(listener)
    assert (server.local, server.peer) == (client.peer, client.local)

    assert client.send(b"a question") == 10
    lab.run(limit_s=0.1)
    assert lab.b.take_events() == [Readable(server)]
    assert server.recv(100) == b"a question"
    server.send(b"an answer")
    server.shutdown_write()
    lab.run(limit_s=0.1)
    assert client.recv(100) == b"an answer"
    assert client.eof
    client.send(b"and one more")
    client.shutdown_write()
    lab.run(limit_s=0.1)
    assert server.recv(100) == b"and one more"
    assert server.eof
    assert (client.state, server.state) == (State.CLOSED, State.TIME_WAIT)
    assert lab.a.take_events()[-1] == Closed(client, 0)
    lab.run(limit_s=61)
    assert state_of(server) is State.CLOSED
    assert lab.b.take_events()[-1] == Closed(server, 0)
    assert lab.a.host.tcp.connections == lab.b.host.tcp.connections == []


def test_megabytes_arrive_unaltered_over_a_bad_wire() -> None:
    lab = Lab(Wire(ratio=7))
    client, server = lab.pair()
    lab.wire.loss, lab.wire.duplicate, lab.wire.reorder = 0.03, 0.01, 0.05
    client.tag(Tag(0x28), 500_001)
    pump = Pump(client, server, lab.rng.randbytes(1_000_000))
    assert lab.run(pump)
    assert bytes(pump.got) == bytes(pump.data)
