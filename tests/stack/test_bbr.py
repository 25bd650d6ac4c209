"""BBR before it has measured anything, and where nothing can be measured."""

from __future__ import annotations

from softnic.stack.tcp.bbr import Bbr
from softnic.stack.tcp.config import TcpConfig

from .lab import Lab, Pump, Wire
from .test_reno import ack


def test_the_first_acknowledgements_may_show_no_round_trip() -> None:
    """Of what was sent twice, say: then the round trip is not known, and no rate is."""
    bbr = Bbr(1514)
    window = bbr.cwnd
    for una in range(2, 12):
        bbr.on_ack(ack(1000, 1000, una, rtt=0.0))
    assert bbr.cwnd == window + 10 * 1000
    assert bbr.rate == 0.0


def test_a_link_without_delay() -> None:
    lab = Lab(Wire(delay_s=0.0), config=TcpConfig(congestion="bbr"))
    client, server = lab.pair()
    pump = Pump(client, server, bytes(300_000))
    assert lab.run(pump)
    assert pump.got == bytes(300_000)
