"""The encryption of a link: handshake, keys and the channel."""

from __future__ import annotations

from softnic.link.sealed import handshake, hello, keys, libcrypto
from softnic.link.sealed import seals as secure_channel
from softnic.link.sealed.handshake import Handshake
from softnic.link.sealed.hello import Hello, HelloError, parse
from softnic.link.sealed.keys import PairKeys, expand, extract, read_key
from softnic.link.sealed.seals import SealCounters as SecureCounters
from softnic.link.udp import VxlanLink

__all__ = [
    "Handshake",
    "Hello",
    "HelloError",
    "PairKeys",
    "SecureCounters",
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
    """Return what an encrypted link counts of its encryption."""
    assert link._seals is not None
    return link._seals.counted
