"""Cards, and the overlay numbers and candidates that follow from them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.link.reach.card import MOST_ADDRESSES, Card, CardAddress, CardError, CardSeal, RelayPort
from softnic.link.reach.messages import CARD_BYTES
from softnic.link.reach.met_node import BY_NODE, CONFIGURED, LOCAL, OVER_IPV6, RELAYED, SEEN, candidates, card_addresses
from softnic.link.reach.numbers import overlay_numbers
from tests.link.reach.world import job_token, public_key

KEY = public_key(1)
CARD = Card(
    7, 3, (CardAddress("local", "10.0.0.1", 4789), CardAddress("configured", "2001:db8::1", 1)), (RelayPort(0, 9500),)
)


def seal(card: Card = CARD, key: bytes = KEY, job: int = 1) -> bytes:
    return CardSeal(job_token(3, job=job)).seal(card, key, random.Random(1).randbytes)


def test_a_card_is_what_was_sealed() -> None:
    assert CardSeal(job_token(3)).open(seal(), KEY) == CARD


def test_a_card_opens_for_its_key_and_job_alone() -> None:
    opener = CardSeal(job_token(3))
    for sealed, key in ((seal(), public_key(2)), (seal(job=2), KEY), (seal(key=public_key(2)), KEY)):
        with pytest.raises(CardError):
            opener.open(sealed, key)


def test_one_changed_byte_or_a_lost_one_is_noticed() -> None:
    opener, sealed = CardSeal(job_token(3)), seal()
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1 << at % 8
        for wrong in (bytes(changed), sealed[:at]):
            with pytest.raises(CardError):
                opener.open(wrong, KEY)


def test_a_name_in_the_place_of_an_address_is_refused() -> None:
    card = Card(1, None, (CardAddress("local", "example.org", 1),), ())
    with pytest.raises(CardError):
        CardSeal(job_token(3)).open(seal(card), KEY)


def test_the_largest_card_fits() -> None:
    addresses = tuple(
        CardAddress("configured", "2001:db8:1111:2222:3333:4444:5555:6666", 65_535) for _ in range(MOST_ADDRESSES)
    )
    card = Card(2**63 - 1, 65_533, addresses, tuple(RelayPort(server, 65_535) for server in range(8)))
    sealed = seal(card)
    assert len(sealed) <= CARD_BYTES
    opened = CardSeal(job_token(3)).open(sealed, KEY)
    assert opened.addresses == addresses[: len(opened.addresses)]
    assert len(opened.addresses) >= 10
    assert opened.relays == card.relays


@given(st.dictionaries(st.binary(min_size=32, max_size=32), st.none() | st.integers(0, 9), min_size=1, max_size=12))
def test_numbers_are_those_of_the_rules(claims: dict[bytes, int | None]) -> None:
    numbers = overlay_numbers(claims)
    assert numbers.keys() == claims.keys()
    assert len(set(numbers.values())) == len(numbers)
    claimed = {claim for claim in claims.values() if claim is not None}
    for claim in claimed:
        assert numbers[min(key for key in claims if claims[key] == claim)] == claim
    free = sorted((key, number) for key, number in numbers.items() if number not in claimed)
    assert [number for _, number in free] == [n for n in range(30) if n not in claimed][: len(free)]


@given(st.dictionaries(st.binary(min_size=32, max_size=32), st.none() | st.integers(0, 9), min_size=1, max_size=12))
def test_numbers_stay_when_nodes_claim_what_they_got(claims: dict[bytes, int | None]) -> None:
    numbers = overlay_numbers(claims)
    for key in claims:
        assert overlay_numbers(claims | {key: numbers[key]}) == numbers


def test_candidates_are_ordered_and_none_is_twice() -> None:
    addresses = card_addresses(
        [("local", ("10.0.0.1", 1)), ("local", ("2a00:1450::1", 1)), ("configured", ("192.0.2.9", 2))]
    )
    relays = [(RelayPort(0, 9500), ("198.51.100.1", 9500)), (RelayPort(bytes(8), 9501), ("198.51.100.2", 9501))]
    found = candidates(addresses, [("192.0.2.9", 2), ("192.0.2.9", 3), ("10.0.0.1", 1)], relays)
    assert [(each.address, each.preference, each.relayed) for each in found] == [
        (("10.0.0.1", 1), LOCAL, False),
        (("2a00:1450::1", 1), OVER_IPV6, False),
        (("192.0.2.9", 2), CONFIGURED, False),
        (("192.0.2.9", 3), SEEN, False),
        (("198.51.100.2", 9501), BY_NODE, True),
        (("198.51.100.1", 9500), RELAYED, True),
    ]


def test_loopback_is_in_a_card_only_if_there_is_nothing_else() -> None:
    assert [each.host for each in card_addresses([("local", ("127.0.0.1", 1)), ("local", ("10.0.0.1", 1))])] == [
        "10.0.0.1"
    ]
    assert [each.host for each in card_addresses([("local", ("127.0.0.1", 1))])] == ["127.0.0.1"]


def test_addresses_that_stand_for_all_are_in_no_card() -> None:
    assert card_addresses([("local", ("::", 1)), ("local", ("0.0.0.0", 1))]) == ()
