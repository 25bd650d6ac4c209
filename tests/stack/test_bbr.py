"""BBR before it has measured anything, where nothing can be measured, and what a measurement may not say."""

from __future__ import annotations

import pytest

from softnic.stack.tcp.bbr import Bbr
from softnic.stack.tcp.config import TcpConfig
from softnic.stack.tcp.flight import Flight

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


def test_acknowledgements_that_come_together_show_no_higher_rate() -> None:
    """A kilobyte leaves every millisecond, and something holds acknowledgements back: those of the first ten come at
    18 ms, and of the next ten at 21 (draft-cheng-iccrg-delivery-rate-estimation-02, section 4.1.2)."""
    bbr, flight = Bbr(1000), Flight()

    def send(number: int) -> None:
        flight.sent(number * 1000, (number + 1) * 1000, 1000, now=number * 0.001)

    def acknowledge(una: int, now: float) -> None:
        told = ack(0, flight.size, now=now, rtt=0.002)
        flight.acknowledge(una, told)
        flight.arrived(told)
        told.delivered = flight.delivered
        bbr.on_ack(told)

    for number in range(19):
        send(number)
    acknowledge(10_000, now=0.018)
    send(19)
    acknowledge(20_000, now=0.021)
    assert bbr.rate == pytest.approx(1e6)


def test_a_link_without_delay() -> None:
    lab = Lab(Wire(delay_s=0.0), config=TcpConfig(congestion="bbr"))
    client, server = lab.pair()
    pump = Pump(client, server, bytes(300_000))
    assert lab.run(pump)
    assert pump.got == bytes(300_000)
