"""The encryption of a link: handshake, keys and the channel."""

from __future__ import annotations

from softnic.link.sealed import handshake, hello, keys, libcrypto
from softnic.link.sealed import seals as secure_channel
from softnic.link.sealed.handshake import Handshake
from softnic.link.sealed.hello import Hello, HelloError, parse
from softnic.link.sealed.keys import PairKeys, expand, extract, read_key
from softnic.link.sealed.seals import SealCounters as SecureCounters

__all__ = [
    "Handshake",
    "Hello",
    "HelloError",
    "PairKeys",
    "SecureCounters",
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
