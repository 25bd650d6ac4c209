"""Negotiation of compressed payloads, which later segments cannot change."""

from __future__ import annotations

from softnic.packet.segment import Flags, Options, Segment
from softnic.tapnic.flows import DEFAULT_MSS, MAX_OFFERS, MIN_MSS, TapFlow, TapFlowTable

SYN, SYN_ACK = int(Flags.SYN), int(Flags.SYN | Flags.ACK)
IP_A, IP_B = 0x0A4D0001, 0x0A4D0002
HERE = (IP_B, 80, 4000, IP_A)
PLAIN_TCP = Options(1460, 7, True)


def out(seq: int, ack: int = 0, *, flags: int = SYN, port: int = 80) -> Segment:
    return Segment(IP_A, IP_B, 4000, port, seq, ack, flags)


def come(seq: int, ack: int = 0, *, flags: int = SYN, port: int = 80) -> Segment:
    return Segment(IP_B, IP_A, port, 4000, seq, ack, flags)


def with_codecs(codecs: int | None, mss: int | None = 1400) -> Options:
    return Options(mss, 7, True, codecs)


def caller(offer: Options, flows: TapFlowTable | None = None) -> TapFlowTable:
    flows = flows or TapFlowTable(0b0111)
    assert flows.sending_syn(out(99), PLAIN_TCP) == Options(1460, 7, True, 0b0111)
    flows.received_syn(come(499, 100, flags=SYN_ACK), offer)
    return flows


def called(offer: Options, flows: TapFlowTable | None = None) -> TapFlowTable:
    flows = flows or TapFlowTable(0b0111)
    flows.received_syn(come(499), offer)
    assert flows.sending_syn(out(99, 500, flags=SYN_ACK), PLAIN_TCP) == Options(1460, 7, True, 0b0111)
    return flows


def flow_of(flows: TapFlowTable, key: tuple[int, int, int, int] = HERE) -> TapFlow:
    flow = flows.find(*key)
    assert flow is not None
    return flow


# Result of the negotiation.


def test_both_ends_take_the_common_codecs() -> None:
    for side in (caller, called):
        assert flow_of(side(with_codecs(0b1100))).codecs == 0b0100
        assert flow_of(side(with_codecs(0b1000))).codecs == 0
        assert flow_of(side(with_codecs(None))).codecs is None
        assert flow_of(side(with_codecs(0b111))).settled


def test_the_peers_mss_is_kept() -> None:
    for side in (caller, called):
        assert flow_of(side(with_codecs(7, 1000))).mss == 1000
        assert flow_of(side(with_codecs(7, None))).mss == DEFAULT_MSS
        assert flow_of(side(with_codecs(7, 1))).mss == MIN_MSS


def test_no_codecs_are_agreed_before_the_answer() -> None:
    flows = TapFlowTable(7)
    flows.sending_syn(out(99), PLAIN_TCP)
    assert not flow_of(flows).settled
    assert flow_of(flows).codecs is None


def test_simultaneous_open_agrees_on_codecs_in_both_directions() -> None:
    flows = TapFlowTable(0b0111)
    flows.sending_syn(out(99), PLAIN_TCP)
    flows.received_syn(come(499), with_codecs(0b0101))
    assert flows.sending_syn(out(99, 500, flags=SYN_ACK), PLAIN_TCP).codecs == 0b0111
    assert flow_of(flows).codecs == 0b0101
    flows.received_syn(come(499, 100, flags=SYN_ACK), with_codecs(0b0101))
    assert flow_of(flows).codecs == 0b0101


# Segments that do not change the result.


def test_later_segments_do_not_change_the_agreed_codecs() -> None:
    for side in (caller, called):
        flows = side(with_codecs(0b0100))
        flows.received_syn(come(499), with_codecs(None))
        flows.received_syn(come(7777), with_codecs(None))
        flows.received_syn(come(499, 100, flags=SYN_ACK), with_codecs(None))
        flows.sending_syn(out(99, 500, flags=SYN_ACK), PLAIN_TCP)
        assert flow_of(flows).codecs == 0b0100


def test_an_answer_to_another_syn_is_ignored() -> None:
    flows = TapFlowTable(7)
    flows.sending_syn(out(99), PLAIN_TCP)
    flows.received_syn(come(499, 99, flags=SYN_ACK), with_codecs(7))
    flows.received_syn(come(499, 101, flags=SYN_ACK), with_codecs(7))
    assert not flow_of(flows).settled


def test_an_unsolicited_answer_creates_no_flow() -> None:
    flows = TapFlowTable(7)
    flows.received_syn(come(499, 100, flags=SYN_ACK), with_codecs(7))
    flows.received_syn(come(499), with_codecs(7))
    assert len(flows) == 0


def test_a_repeated_syn_keeps_the_flow_and_its_options() -> None:
    flows = TapFlowTable(7)
    first = flows.sending_syn(out(99), PLAIN_TCP)
    flow = flow_of(flows)
    assert flows.sending_syn(out(99), PLAIN_TCP) == first
    assert flow_of(flows) is flow


# New connections on old ports.


def test_a_new_connection_on_the_same_ports_negotiates_again() -> None:
    flows = called(with_codecs(7))
    flows.received_syn(come(5000), with_codecs(None))
    flows.sending_syn(out(200, 5001, flags=SYN_ACK), PLAIN_TCP)
    assert flow_of(flows).iss == 200
    assert flow_of(flows).codecs is None


# Bounded memory.


def test_an_offer_evicted_by_a_flood_is_answered_without_the_option() -> None:
    """With the option, the peer would compress for a NIC that has no state of the flow."""
    flows = TapFlowTable(7)
    flows.received_syn(come(499), with_codecs(7))
    for port in range(10_000, 10_000 + MAX_OFFERS):
        flows.received_syn(come(1, port=port), with_codecs(7))
    assert flows.sending_syn(out(99, 500, flags=SYN_ACK), PLAIN_TCP).codecs is None
    assert flow_of(flows).codecs is None
    last = (IP_B, 10_000 + MAX_OFFERS - 1, 4000, IP_A)
    flows.sending_syn(out(99, 2, flags=SYN_ACK, port=last[1]), PLAIN_TCP)
    assert flow_of(flows, last).codecs == 7
