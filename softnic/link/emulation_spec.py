"""The properties of an emulated link, in units and as users write them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from softnic import units

COALESCE_S = 100e-6
"""Minimum interval between departures of delayed frames, as with a NIC's interrupt moderation; a single frame leaves on
time."""

_LEAST_RATE_BPS = 1e-300
"""Of a smaller rate, the time of a byte is infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationSpec:
    """An emulated link (emulation.py). Probabilities are per frame.

    Raises
    ------
    ValueError
        For a value out of range, naming the field.
    """

    rate_bps: float | None = None
    """None: as fast as the link inside."""
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Half the width of the uniform distribution of the delay, which is never below 0."""
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    limit_bytes: int | None = None
    """Queue of the bottleneck; without a rate, all bytes in flight. None: 1 MB within 2 to 8 ms of the rate, or 16 MiB.
    If processes outnumber cores and a sender may wait longer than that for its turn, only a higher limit keeps the
    link busy, at the cost of delay."""
    coalesce_s: float = COALESCE_S

    def __post_init__(self) -> None:
        for name in ("delay_s", "jitter_s", "coalesce_s"):
            if not (0 <= getattr(self, name) < math.inf):
                raise ValueError(f"{name} must be a time of 0 or more, not {getattr(self, name)!r}")
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            if not (0 <= getattr(self, name) <= 1):
                raise ValueError(f"{name} must be a probability from 0 to 1, not {getattr(self, name)!r}")
        if self.rate_bps is not None and not (_LEAST_RATE_BPS < self.rate_bps < math.inf):
            raise ValueError(f"rate_bps must be more than 0, not {self.rate_bps!r}")
        if self.limit_bytes is not None and self.limit_bytes <= 0:
            raise ValueError(f"limit_bytes must be more than 0, not {self.limit_bytes!r}")

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> EmulationSpec:
        """Parse a specification as users write it: {"rate": "1gbit", "delay": "50us", "loss": "0.1%", "limit":
        "256kb"}.

        Keys are the fields without their units.

        Raises
        ------
        ValueError
            For an unknown key or a malformed value, naming the key.
        """
        values: dict[str, float | int] = {}
        for key, text in texts.items():
            if key not in _PARSERS:
                raise ValueError(f"{key!r} is not a property of a link: use one of {', '.join(_PARSERS)}")
            name, parse = _PARSERS[key]
            try:
                values[name] = parse(text)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        return cls(**values)  # type: ignore[arg-type]  # the parsers give each field its type


_PARSERS = {
    "rate": ("rate_bps", units.rate_bps),
    "delay": ("delay_s", units.time_s),
    "jitter": ("jitter_s", units.time_s),
    "loss": ("loss", units.probability),
    "duplicate": ("duplicate", units.probability),
    "reorder": ("reorder", units.probability),
    "corrupt": ("corrupt", units.probability),
    "limit": ("limit_bytes", units.size_bytes),
    "coalesce": ("coalesce_s", units.time_s),
}
