"""Packets for the engines under cocotb, with what the C makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from softnic import codecs
from softnic.codecs.combine import ReduceOp, combine

Floats = npt.NDArray[np.float32]
Packets = dict[str, bytes]
BFP, RHT = codecs.get("bfp:7"), codecs.get("rht:4")
WORDS = 128 + 64 + 16 + 8 + 3


@dataclass(frozen=True)
class Case:
    """An engine: its ports, and a maker of its inputs and of the outputs that they lead to."""

    module: str
    make: Callable[[np.random.Generator], tuple[Packets, Packets]]
    inputs: tuple[str, ...] = ("s",)
    outputs: tuple[str, ...] = ("m",)
    settings: dict[str, int] = field(default_factory=dict)
    spoil: Callable[[Packets], Packets] | None = None
    """Makes the inputs of a malformed packet."""
    pauses: int = 1
    """Most cycles between two packets back to back, beyond those of their beats."""


def floats(random: np.random.Generator) -> Floats:
    values = random.normal(0, 1, WORDS).astype(np.float32)
    values[random.integers(0, WORDS, 2)] = random.choice([np.inf, 0, 1e-42, 1e38], 2)
    return values


def encoding(codec: codecs.Codec) -> Callable[[np.random.Generator], tuple[Packets, Packets]]:
    def make(random: np.random.Generator) -> tuple[Packets, Packets]:
        words = floats(random)
        return {"s": words.tobytes()}, {"m": codec.encode(words)}

    return make


def decoding(codec: codecs.Codec) -> Callable[[np.random.Generator], tuple[Packets, Packets]]:
    def make(random: np.random.Generator) -> tuple[Packets, Packets]:
        body = codec.encode(floats(random))
        return {"s": body}, {"m": codec.decode(body, WORDS).tobytes()}

    return make


def addition(random: np.random.Generator) -> tuple[Packets, Packets]:
    a, b = floats(random), floats(random)
    a[np.isinf(a)] = 1  # no inf - inf, whose NaN is the machine's
    return {"a": a.tobytes(), "b": b.tobytes()}, {"m": combine(ReduceOp.SUM, a, b).tobytes()}


def ring(random: np.random.Generator) -> tuple[Packets, Packets]:
    body, local = BFP.encode(floats(random)), random.normal(0, 1, WORDS).astype(np.float32)
    sent = BFP.encode(combine(ReduceOp.SUM, BFP.decode(body, WORDS), local))
    return {"rx": body, "local": local.tobytes()}, {"tx": sent, "out": BFP.decode(sent, WORDS).tobytes()}


def shorter(name: str, by: int) -> Callable[[Packets], Packets]:
    return lambda packets: {**packets, name: packets[name][:-by]}


CASES = {
    case.module: case
    for case in (
        Case("float_add_lanes", addition, ("a", "b"), spoil=shorter("b", 64), pauses=0),
        Case("bfp_encoder", encoding(BFP), settings={"magnitude_bits": 7}, spoil=shorter("s", 1)),
        Case(
            "bfp_decoder",
            decoding(BFP),
            settings={"magnitude_bits": 7, "words": WORDS},
            spoil=shorter("s", 1),
            pauses=3,
        ),
        Case("rht_encoder", encoding(RHT), spoil=shorter("s", 1), pauses=3),
        Case("rht_decoder", decoding(RHT), settings={"words": WORDS}, spoil=shorter("s", 1), pauses=6),
        Case(
            "ring_step",
            ring,
            ("rx", "local"),
            ("tx", "out"),
            dict.fromkeys(("receives", "adds", "sends", "stores"), 1) | {"magnitude_bits": 7, "words": WORDS},
            shorter("rx", 1),
            16,
        ),
    )
}
