"""The card of a node: its overlay number, if it claims one, and where it may be reached, sealed for the job's nodes.

AES-256-GCM under a key from the token's secret, with the node's public key as associated data: a server, which has no
token, can neither read a card, nor change it, nor give it to another node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Meta, Struct

from softnic import underlay
from softnic.link.reach.messages import CARD_BYTES, Natural, Port
from softnic.link.reach.numbers import MOST_NUMBER
from softnic.link.reach.token import MOST_SERVERS, Token
from softnic.underlay import Address

MOST_ADDRESSES = 12
"""Addresses in a card."""
MOST_RELAYING = 4
"""Nodes whose relays a job uses; addresses of each."""
NAME_BYTES = 8
RelayName = Annotated[bytes, Meta(min_length=NAME_BYTES, max_length=NAME_BYTES)]
"""The first 8 bytes of the public key of a node that relays."""
_NONCE_BYTES = 12
_PURPOSE = b"card"

Kind = Literal["local", "configured"]


class CardError(ValueError):
    """A card that no node of the job sealed for this key, or whose content is illegal."""


class CardAddress(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """An address that a node has, or was configured with."""

    kind: Kind
    host: Annotated[str, Meta(max_length=64)]
    """An IP address."""
    port: Port

    @property
    def address(self) -> Address:
        """The host and port."""
        return self.host, self.port


class RelayPort(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The port of a node at the relay of a server, or of a node."""

    server: Annotated[int, Meta(ge=0, lt=MOST_SERVERS)] | RelayName
    """Index in the token's servers, or the relaying node's name."""
    port: Port


class Card(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What a node tells the other nodes."""

    serial: Natural
    """Greater in each card of a node: older ones are not believed."""
    number: Annotated[int, Meta(ge=0, le=MOST_NUMBER)] | None
    addresses: Annotated[tuple[CardAddress, ...], Meta(max_length=MOST_ADDRESSES)]
    relays: Annotated[tuple[RelayPort, ...], Meta(max_length=MOST_SERVERS + MOST_RELAYING)]
    serves: Annotated[tuple[CardAddress, ...], Meta(max_length=MOST_RELAYING)] = ()
    """Where the node is a meeting server of this job itself, with a relay."""


_decoder = msgspec.msgpack.Decoder(Card)


class CardSeal:
    """Seals and opens the cards of a job."""

    def __init__(self, token: Token) -> None:
        self._cipher = AESGCM(token.derive(_PURPOSE))

    def seal(self, card: Card, key: bytes, random_bytes: Callable[[int], bytes]) -> bytes:
        """Return the sealed card of the node with this public key; addresses that do not fit are left out."""
        while True:
            packed = msgspec.msgpack.encode(card)
            if len(packed) <= CARD_BYTES - _NONCE_BYTES - 16:
                break
            card = msgspec.structs.replace(card, addresses=card.addresses[:-1])
        nonce = random_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, packed, key)

    def open(self, sealed: bytes, key: bytes) -> Card:
        """Return the card of the node with this public key. Raises CardError."""
        if not _NONCE_BYTES + 16 < len(sealed) <= CARD_BYTES:
            raise CardError("no card has this length")
        try:
            packed = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], key)
            card = _decoder.decode(packed)
        except (InvalidTag, msgspec.MsgspecError, ValueError):
            raise CardError("the card was not sealed for this node") from None
        if not all(underlay.is_address(each.host) for each in (*card.addresses, *card.serves)):
            raise CardError("an address of the card is not an IP address")
        return card
