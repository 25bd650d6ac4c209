"""Reads waveforms: the values of a VCD's signals over time (IEEE 1800-2017, clause 21.7).

Only what simulators write of wires and registers: scopes, variables, times, scalar and binary changes.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Signal:
    """A signal's changes. An unknown or floating bit reads as 0."""

    name: str
    """With its scopes: `packet_loop.receive.tag`."""
    width: int
    times: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def at(self, time: int) -> int:
        """Return the value at a time, after the changes of this time; 0 before the first."""
        index = bisect.bisect_right(self.times, time) - 1
        return self.values[index] if index >= 0 else 0


@dataclass
class Waveform:
    """The signals of a VCD by name; aliases, as a port and the wire it is connected to, share one `Signal`."""

    signals: dict[str, Signal]
    end: int
    """The last time."""

    def rising(self, clock: str) -> list[int]:
        """Return the times at which a signal of one bit becomes 1."""
        signal = self.signals[clock]
        return [time for time, value in zip(signal.times, signal.values, strict=True) if value == 1]

    def beats(self, port: str, clock: str) -> list[tuple[int, bytes, bool]]:
        """Return the beats of an AXI4-Stream port: the time of each, its bytes, and whether it ends a packet.

        `port` is the part of the names before `_tdata`, `_tkeep`, `_tvalid`, `_tready` and `_tlast`. A beat is what the
        signals have just before the clock rises.
        """
        data, keep, valid, ready, last = (
            self.signals[f"{port}_{part}"] for part in ("tdata", "tkeep", "tvalid", "tready", "tlast")
        )
        found = []
        for time in self.rising(clock):
            before = time - 1
            if valid.at(before) and ready.at(before):
                size = keep.at(before).bit_count()
                beat = data.at(before).to_bytes(data.width // 8, "little")[:size]
                found.append((time, beat, bool(last.at(before))))
        return found


def read(path: Path) -> Waveform:
    """Return the waveform of a file. Raises ValueError for one that is no VCD, and OSError."""
    head, mark, body = path.read_text().partition("$enddefinitions")
    if not mark:
        raise ValueError(f"{path} is not a VCD: it has no $enddefinitions")
    by_code, signals = _declared(head)
    time = 0
    words = iter(body.split())
    for word in words:
        kind = word[0]
        if kind == "#":
            time = int(word[1:])
        elif kind in "bB":
            _change(by_code[next(words)], time, word[1:])
        elif kind in "01xXzZ":
            _change(by_code[word[1:]], time, kind)
    return Waveform(signals, time)


def _declared(head: str) -> tuple[dict[str, Signal], dict[str, Signal]]:
    """Return the signals by code and by name."""
    by_code: dict[str, Signal] = {}
    signals: dict[str, Signal] = {}
    scopes: list[str] = []
    for declaration in head.split("$end"):
        match declaration.split():
            case ["$scope", _, name]:
                scopes.append(name)
            case ["$upscope"]:
                scopes.pop()
            case ["$var", _, width, code, name, *_]:
                full = ".".join((*scopes, name))
                signals[full] = by_code.setdefault(code, Signal(full, int(width)))
    return by_code, signals


def _change(signal: Signal, time: int, bits: str) -> None:
    value = int("".join(bit if bit in "01" else "0" for bit in bits), 2)
    signal.times.append(time)
    signal.values.append(value)
