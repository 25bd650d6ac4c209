"""Cookies prove that a node receives at the address that it sends from, without memory for addresses not yet proven."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from softnic.link.reach.messages import COOKIE_BYTES
from softnic.underlay import Address

LIFETIME_S = 25.0
"""A cookie is valid for one to two lifetimes."""


class Cookies:
    """Makes and checks cookies under a secret that changes every LIFETIME_S."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._secrets = [random_bytes(32)]
        """The current one, and the one before."""
        self._until: float | None = None

    def make(self, address: Address, grant: bytes, key: bytes, now: float) -> bytes:
        """Return the cookie of a node, by the job's grant and the node's public key, at an address."""
        self._renew(now)
        return self._made(self._secrets[0], address, grant, key)

    def is_valid(self, cookie: bytes, address: Address, grant: bytes, key: bytes, now: float) -> bool:
        """Return whether this node got this cookie at this address."""
        self._renew(now)
        return any(hmac.compare_digest(self._made(each, address, grant, key), cookie) for each in self._secrets)

    def _renew(self, now: float) -> None:
        if self._until is None:
            self._until = now + LIFETIME_S
        elif now >= self._until:
            kept = self._secrets[:1] if now < self._until + LIFETIME_S else []
            self._secrets = [self._random_bytes(32), *kept]
            self._until = now + LIFETIME_S

    @staticmethod
    def _made(secret: bytes, address: Address, grant: bytes, key: bytes) -> bytes:
        what = f"{address[0]} {address[1]} ".encode() + grant + key
        return hmac.digest(secret, what, hashlib.sha256)[:COOKIE_BYTES]
