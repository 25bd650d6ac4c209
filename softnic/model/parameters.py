"""The figures of a machine that the formulas need, and the file that keeps them.

`softnic model calibrate` measures and writes them, `softnic model predict` reads them. The file is JSON and may be
edited: rates in bytes or FLOP a second, times in seconds.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from softnic.model.layers import BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecFigures:
    """The figures of a codec, on certain data."""

    betas: tuple[float, ...]
    """Compression ratio of gradients, of sums of 2 ranks' gradients, of 4, 8 and so on; constant beyond the last."""
    alpha: float
    """Fraction of a link that is not headers."""
    encode_bytes_s: float
    """Bytes of floats a second, on one core."""
    decode_bytes_s: float

    def __post_init__(self) -> None:
        figures = (*self.betas, self.alpha, self.encode_bytes_s, self.decode_bytes_s)
        if not self.betas or not min(figures) > 0:
            raise ValueError("a codec has a ratio and rates, all more than 0")

    def beta(self, summed: int = 1) -> float:
        """Return the ratio of sums of this number of ranks' gradients, interpolated."""
        return float(np.interp(math.log2(summed), range(len(self.betas)), self.betas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One worker and its NIC."""

    description: str
    P_Worker: float
    """FLOP/s of float32 matrix products."""
    add_bytes_s: float
    """Bytes of float32 summed a second: 1 / gamma."""
    nic_add_bytes_s: float | None = None
    """Bytes of float32 that the NIC sums a second: P_FPGA. None: those of the worker."""
    memory_bytes_s: float
    """Bytes copied a second. It stands for BW_pcie, as the NIC is a process on the same memory."""
    update_bytes_s: float
    """Bytes of parameters updated a second, by stochastic gradient descent with momentum."""
    alpha: float
    """Fraction of a link that is payload, without compression."""
    latency_s: float
    """One way from process to process through both NICs, on a link without delay."""
    stream_bytes_s: float | None = None
    """The most that a stream carries through two NICs, uncompressed; None: as much as the link."""
    codecs: dict[str, CodecFigures] = field(default_factory=dict)
    data: str = ""
    """The data on which codecs were measured."""

    def __post_init__(self) -> None:
        for name in ("P_Worker", "add_bytes_s", "memory_bytes_s", "update_bytes_s", "alpha"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)!r}")
        if self.latency_s < 0:
            raise ValueError(f"latency_s must be 0 or more, not {self.latency_s!r}")

    @property
    def update_s(self) -> float:
        """T_U of one parameter, in seconds."""
        return BYTES / self.update_bytes_s

    def codec(self, name: str) -> CodecFigures:
        """Return the figures of a codec. Raises ValueError for one that was not measured."""
        if name not in self.codecs:
            known = ", ".join(self.codecs) or "none"
            raise ValueError(
                f"the parameters have no codec {name}, they have {known}: softnic model calibrate --codec {name}"
            )
        return self.codecs[name]


PAPER = Machine(
    description="the prototype of Ma et al. (arXiv 2204.10943): Xeon Platinum 8280, Arria 10, 40 Gbit/s",
    P_Worker=2.2e12,
    add_bytes_s=2.8e9,
    nic_add_bytes_s=4 * 8 * 250e6,
    memory_bytes_s=15.8e9,
    update_bytes_s=120e9,
    alpha=1.0,
    latency_s=1e-6,
    codecs={"bfp:7": CodecFigures(betas=(3.8,), alpha=1.0, encode_bytes_s=19e9, decode_bytes_s=19e9)},
    data="the paper's",
)
"""The paper's own system. Given in the paper: alpha and beta; PCIe Gen3 x8, 7.9 GB/s each way; adders of 8 lanes;
compression at the rate of the link.

Inferred from the percentages of its Fig. 4a (6 nodes, B = 448; all-reduce exposed for 38 % of the baseline's time, for
24 % with the NIC, for 2 % with BFP): P_Worker, and the bytes that a baseline's cores sum a second, which stand for all
the work of MPI beside sending. Assumed: a clock of 250 MHz, an update at the memory's bandwidth, a latency of 1 us."""

CLOCK_HZ = 250e6
"""Of Ma et al.'s FPGA, assumed: the paper gives none."""
BEAT_BYTES = 64
"""Floats that bfp_encoder, bfp_decoder and ring_step (native/rtl) take in a cycle: sixteen."""
BLOCK_BYTES = 17
"""What bfp_encoder makes of these: an exponent, and sixteen times a sign and 7 bits."""
STEP_CYCLES = 26
"""From a body that enters ring_step to the one that leaves it, with the local block added."""

ENGINES = replace(
    PAPER,
    description="the prototype of Ma et al. with the engines of native/rtl, at 250 MHz",
    nic_add_bytes_s=BEAT_BYTES * CLOCK_HZ,
    latency_s=PAPER.latency_s + STEP_CYCLES / CLOCK_HZ,
    codecs={
        "bfp:7": CodecFigures(
            betas=(BEAT_BYTES / BLOCK_BYTES,),
            alpha=1.0,
            encode_bytes_s=BEAT_BYTES * CLOCK_HZ,
            decode_bytes_s=BEAT_BYTES * CLOCK_HZ,
        )
    },
    data="any without infinities and NaNs",
)
"""PAPER with cycles of the engines, which tests/rtl asserts, in place of its adders, its compression at the rate of the
link, and its ratio."""


def default_path() -> Path:
    """Return the path that `calibrate` writes and `predict` reads: under XDG_CONFIG_HOME, or ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME") or ""
    # The XDG base directory specification ignores paths that are not absolute.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    return root / "softnic" / "machine.json"


def save(machine: Machine, path: Path) -> None:
    """Write a machine's figures, in a new directory if necessary. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(machine), indent=2) + b"\n")


def load(path: Path) -> Machine:
    """Read a machine's figures. Raises ValueError for another kind of file, and OSError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Machine)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is not a file of a machine's parameters: {error}") from None
