"""The overlay numbers of a job's nodes: a function of their keys and claims, so that all nodes find the same ones.

The node with number n is at the n-th address from 10.77.0.1 on.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Mapping

MOST_NUMBER = 65_533
"""Greatest overlay number."""
_FIRST = ipaddress.IPv4Address("10.77.0.1")


def overlay_ip(number: int) -> str:
    """Return the address of the node with a number."""
    return str(_FIRST + number)


def number_of(ip: str) -> int:
    """Return the number of the node at an IPv4 address; negative: no node of a job has it."""
    return int(ipaddress.IPv4Address(ip)) - int(_FIRST)


def overlay_numbers(claims: Mapping[bytes, int | None]) -> dict[bytes, int]:
    """Return the number of each node.

    A node keeps the number that it claims; of two that claim the same one, the lower key keeps it. The others take the
    free numbers from 0 on, in the order of their keys.

    Parameters
    ----------
    claims : mapping of bytes to int or None
        What each node of the job claims, by public key.
    """
    numbers: dict[bytes, int] = {}
    taken: set[int] = set()
    for key in sorted(claims):
        claim = claims[key]
        if claim is not None and claim not in taken:
            numbers[key] = claim
            taken.add(claim)
    free = (number for number in itertools.count() if number not in taken)
    for key in sorted(claims.keys() - numbers.keys()):
        numbers[key] = next(free)
    return numbers
