"""Messages: every one survives its way, and no other datagram is one."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.link.reach import messages
from softnic.link.reach.messages import (
    ANSWERS,
    HEADER_BYTES,
    LEAST_REQUEST_BYTES,
    REQUESTS,
    AddressBound,
    AddressChallenge,
    AllocatePort,
    BindAddress,
    JobEntry,
    JobState,
    LeaveJob,
    MeetingMessage,
    MeetingMessageError,
    NatProbed,
    PortAllocated,
    ProbeNat,
    RegisterNode,
    RequestRefused,
    grant_of,
    is_genuine,
    pack,
    pack_address,
    pack_request,
    unpack,
    unpack_address,
)
from tests.link.reach.world import job_token

TOKEN = job_token(3)
GRANT = TOKEN.grant.pack()
KEY, COOKIE = bytes(range(32)), bytes(16)
SEEN = pack_address(("192.0.2.1", 4789))
EXAMPLES: list[MeetingMessage] = [
    RegisterNode(key=KEY, sequence=7, cookie=COOKIE, epoch=bytes(8), known=3, card=b"card"),
    ProbeNat(key=KEY, sequence=2**63 - 1, cookie=b"", how=2),
    AllocatePort(key=KEY, sequence=1, cookie=COOKIE),
    LeaveJob(key=KEY, sequence=1, cookie=COOKIE),
    BindAddress(key=KEY, sequence=1, cookie=COOKIE),
    AddressChallenge(echo=7, cookie=COOKIE, seen=SEEN),
    JobState(
        echo=7,
        cookie=COOKIE,
        seen=SEEN,
        epoch=bytes(8),
        since=0,
        until=2,
        latest=9,
        entries=[JobEntry(KEY, b"card", [SEEN])],
    ),
    NatProbed(echo=7, how=1, seen=SEEN),
    PortAllocated(echo=7, port=9500),
    AddressBound(echo=7),
    RequestRefused(echo=7, reason=1),
]


def test_there_is_an_example_of_every_message() -> None:
    assert {type(each) for each in EXAMPLES} == {*REQUESTS, *ANSWERS}


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda each: type(each).__name__)
def test_a_message_survives_its_way(message: MeetingMessage) -> None:
    datagram = pack(message, GRANT, TOKEN.admission)
    assert datagram[:4] == bytes((0x13, 1, message.kind, 0))
    assert grant_of(datagram) == GRANT
    assert is_genuine(datagram, TOKEN.admission)
    assert unpack(datagram, (type(message),)) == message
    others = ANSWERS if type(message) in REQUESTS else REQUESTS
    with pytest.raises(MeetingMessageError):
        unpack(datagram, others)


@pytest.mark.parametrize("message", EXAMPLES[:4], ids=lambda each: type(each).__name__)
def test_requests_are_as_long_as_any_answer_to_an_unproven_address(message: MeetingMessage) -> None:
    datagram = pack_request(message, GRANT, TOKEN.admission)
    assert len(datagram) >= LEAST_REQUEST_BYTES
    seen = pack_address(("2001:db8::1", 65535))
    challenge = pack(AddressChallenge(echo=2**63 - 1, cookie=COOKIE, seen=seen), GRANT, TOKEN.admission)
    assert len(challenge) <= LEAST_REQUEST_BYTES


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda each: type(each).__name__)
def test_one_changed_byte_or_a_lost_one_is_noticed(message: MeetingMessage) -> None:
    datagram = pack(message, GRANT, TOKEN.admission)
    for at in range(len(datagram)):
        changed = bytearray(datagram)
        changed[at] ^= 1 << at % 8
        for wrong in (bytes(changed), datagram[:at]):
            try:
                grant_of(wrong)
            except MeetingMessageError:
                continue
            assert not is_genuine(wrong, TOKEN.admission)


@given(st.binary(max_size=1300), st.sampled_from([each.kind for each in EXAMPLES]))
def test_genuine_bodies_of_any_bytes_are_legal_messages_or_refused(body: bytes, kind: int) -> None:
    datagram = bytes((0x13, 1, kind, 0)) + GRANT + bytes(16) + body
    try:
        message = unpack(datagram, (*REQUESTS, *ANSWERS))
    except MeetingMessageError:
        return
    assert message.kind == kind


def test_mutated_bodies_are_legal_messages_or_refused() -> None:
    chance = random.Random(1)
    refused = 0
    for _ in range(20_000):
        message = chance.choice(EXAMPLES)
        body = bytearray(msgspec.msgpack.encode(message))
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        try:
            unpack(bytes((0x13, 1, message.kind, 0)) + bytes(HEADER_BYTES - 4) + body, (type(message),))
        except MeetingMessageError:
            refused += 1
    assert refused > 5_000


def test_other_datagrams_are_no_messages() -> None:
    datagram = pack(EXAMPLES[0], GRANT, TOKEN.admission)
    for wrong in (
        b"",
        b"\x13",
        datagram[:HEADER_BYTES],
        b"\x11" + datagram[1:],
        b"\x13\x02" + datagram[2:],
        datagram + bytes(messages.MOST_BYTES),
    ):
        with pytest.raises(MeetingMessageError):
            grant_of(wrong)


@pytest.mark.parametrize("address", [("192.0.2.1", 1), ("2001:db8::1", 65535)])
def test_addresses_survive(address: tuple[str, int]) -> None:
    assert unpack_address(pack_address(address)) == address


@pytest.mark.parametrize("data", [b"", bytes(5), bytes(7), bytes(6), bytes(18), bytes(19)])
def test_what_is_no_address_is_none(data: bytes) -> None:
    assert unpack_address(data) is None


def test_a_mapped_address_is_that_of_ipv4() -> None:
    mapped = bytes(10) + b"\xff\xff" + bytes((192, 0, 2, 1)) + b"\x12\xb5"
    assert unpack_address(mapped) == ("192.0.2.1", 4789)


def test_a_tunnel_has_no_address() -> None:
    assert pack_address(("tunnel7", 1)) == b""
