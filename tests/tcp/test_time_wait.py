"""TIME-WAIT: purpose, end, and reuse by a new connection (RFC 9293, section 3.6.1; RFC 1337; RFC 6191)."""

from __future__ import annotations

import errno

import pytest

from softnic.tcp.state import State
from tests.tcp.flows import flow
from tests.tcp.script import ACK, FIN, RST, SYN, Script, state_of


class TestTimeWait:
    def enter(self, script: Script) -> None:
        self.connection = script.accept(timestamps=(1000, 0))
        self.connection.shutdown_write()
        script.sent()
        script.receive(FIN | ACK, 1, 2, timestamps=(1000, 0))
        assert state_of(self.connection) is State.TIME_WAIT

    def test_it_ends_after_2_msl(self, script: Script) -> None:
        self.enter(script)
        script.wait(59.9)
        assert state_of(self.connection) is State.TIME_WAIT
        script.wait(0.2)
        assert state_of(self.connection) is State.CLOSED

    def test_the_fin_again_is_acknowledged_and_starts_it_again(self, script: Script) -> None:
        self.enter(script)
        script.wait(50)
        assert script.shape(script.receive(FIN | ACK, 1, 2, timestamps=(1000, 0))) == [("A", 2, 2, 0)]
        script.wait(50)
        assert state_of(self.connection) is State.TIME_WAIT

    def test_nothing_else_starts_it_again(self, script: Script) -> None:
        self.enter(script)
        script.wait(50)
        script.receive(ACK, 1, 2, timestamps=(1000, 0))
        script.receive(ACK, 0, 2, b"x", timestamps=(1000, 0))
        script.wait(11)
        assert state_of(self.connection) is State.CLOSED

    def test_resets_are_ignored(self, script: Script) -> None:
        self.enter(script)
        script.receive(RST, 2)
        assert state_of(self.connection) is State.TIME_WAIT

    def test_a_newer_syn_opens_a_new_connection(self, script: Script) -> None:
        self.enter(script)
        script.host.listen(0, 80, 5, script.now)
        old = script.iss
        script.wait(1)
        [reply] = script.receive(SYN, -500, timestamps=(1001, 0))
        assert reply.flags == SYN | ACK
        assert reply.seq != old
        assert state_of(self.connection) is State.CLOSED

    @pytest.mark.parametrize("flags", [SYN | ACK, SYN | RST])
    def test_what_is_no_plain_syn_does_not(self, script: Script, flags: int) -> None:
        self.enter(script)
        script.host.listen(0, 80, 5, script.now)
        sent = script.receive(flags, 500, 2, timestamps=(1001, 0))
        assert not any(s.flags & (RST | SYN) for s in sent)
        assert state_of(self.connection) is State.TIME_WAIT

    def test_nor_where_nobody_listens(self, script: Script) -> None:
        self.enter(script)
        assert [s.flags for s in script.receive(SYN, 500, timestamps=(1001, 0))] == [ACK]
        assert state_of(self.connection) is State.TIME_WAIT

    def test_an_older_syn_does_not(self, script: Script) -> None:
        self.enter(script)
        script.host.listen(0, 80, 5, script.now)
        assert [s.flags for s in script.receive(SYN, -500, timestamps=(999, 0))] == [ACK]
        assert state_of(self.connection) is State.TIME_WAIT

    @pytest.mark.parametrize(
        ("used", "stamp", "seq", "opens"),
        [
            (1000, 1001, -500, True),
            (1000, 1000, 500, True),
            (1000, 1000, -500, False),
            (1000, 999, 500, False),
            (1000, None, 500, True),
            (1000, None, -500, False),
            (None, 5, -500, True),
            (None, 0x90000000, -500, True),
            (None, None, 500, True),
            (None, None, -500, False),
        ],
    )
    def test_every_case_of_rfc_6191(
        self, script: Script, used: int | None, stamp: int | None, seq: int, opens: bool
    ) -> None:
        """Timestamps of the old connection, of the SYN, and its sequence number beside the old connection's last."""
        stamps = None if used is None else (used, 0)
        self.connection = script.accept(timestamps=stamps)
        self.connection.shutdown_write()
        script.sent()
        script.receive(FIN | ACK, 1, 2, timestamps=stamps)
        script.host.listen(0, 80, 5, script.now)
        replies = script.receive(SYN, seq, timestamps=None if stamp is None else (stamp, 0))
        assert (state_of(self.connection) is State.CLOSED) == opens
        assert any(reply.flags == SYN | ACK for reply in replies) == opens

    def test_a_new_connection_begins_behind_all_that_the_old_one_sent(self, script: Script) -> None:
        """However fast that was: the clock of initial numbers alone does 250 kB/s (RFC 9293, section 3.6.1)."""
        connection = script.accept(window_scale=14, timestamps=(1000, 0))
        while flow(connection).snd_una < 50_000_000:
            connection.send(bytes(4_000_000))
            script.sent()
            script.receive(ACK, 1, flow(connection).snd_nxt, timestamps=(1000, 0))
        connection.shutdown_write()
        while not flow(connection).fin_acknowledged:
            script.sent()
            script.receive(ACK, 1, flow(connection).snd_nxt, timestamps=(1000, 0))
        last = flow(connection).snd_nxt
        script.receive(FIN | ACK, 1, last, timestamps=(1000, 0))
        assert state_of(connection) is State.TIME_WAIT
        script.host.listen(0, 80, 5, script.now)
        old = script.iss
        [reply] = script.receive(SYN, 2, timestamps=(1001, 0))
        assert (reply.seq - old) & 0xFFFFFFFF == last + 0x10000

    def test_our_own_new_connection_may_take_its_place(self, script: Script) -> None:
        connection = script.established()
        connection.shutdown_write()
        script.sent()
        script.receive(FIN | ACK, 1, 2)
        port = connection.local[1]
        again = script.host.connect(connection.peer[0], 80, script.now, sport=port)
        assert state_of(again) is State.SYN_SENT
        with pytest.raises(OSError, match=r"connected to .* already") as error:
            script.host.connect(connection.peer[0], 80, script.now, sport=port)
        assert error.value.errno == errno.EADDRINUSE
