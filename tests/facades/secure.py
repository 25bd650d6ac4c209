"""The encryption of a link: handshake, keys and the channel."""

from __future__ import annotations

from softnic.link.secure import channel as secure_channel
from softnic.link.secure import handshake, hello, keys, libcrypto
from softnic.link.secure.channel import SecureCounters
from softnic.link.secure.handshake import Handshake
from softnic.link.secure.hello import HelloError, SecureHello, parse
from softnic.link.secure.keys import PairKeys, expand, extract, read_key
from softnic.link.udp import VxlanLink

__all__ = [
    "Handshake",
    "HelloError",
    "PairKeys",
    "SecureCounters",
    "SecureHello",
    "counters_of",
    "expand",
    "extract",
    "handshake",
    "hello",
    "keys",
    "libcrypto",
    "parse",
    "read_key",
    "secure_channel",
]


def counters_of(link: VxlanLink) -> SecureCounters:
    """Return the counters of a link's encryption."""
    assert link._channel is not None
    return link._channel.counted
