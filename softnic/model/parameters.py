"""What the formulas need to know of a machine, and the file that keeps it.

`softnic model calibrate` measures and writes it, `softnic model predict` reads it. It is JSON, to be read and changed
by people too: rates in bytes or FLOP a second, times in seconds.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from softnic.model.layers import BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecFigures:
    """Of a codec, on the data that was measured with."""

    betas: tuple[float, ...]
    """Compression ratio of gradients, of the sum of 2 ranks' ones, of 4, 8 and so on; beyond the last the same."""
    alpha: float
    """Share of a link that is not headers."""
    encode_bytes_s: float
    """Bytes of floats a second, on one core."""
    decode_bytes_s: float

    def __post_init__(self) -> None:
        figures = (*self.betas, self.alpha, self.encode_bytes_s, self.decode_bytes_s)
        if not self.betas or not min(figures) > 0:
            raise ValueError("a codec has a ratio and rates, all more than 0")

    def beta(self, summed: int = 1) -> float:
        """Ratio of the sum of so many ranks' gradients, between those that were measured."""
        place = math.log2(summed)
        return float(np.interp(place, range(len(self.betas)), self.betas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One worker and its NIC."""

    description: str
    P_Worker: float
    """FLOP/s of float32 matrix products."""
    add_bytes_s: float
    """Bytes of float32 summed a second: 1 / gamma."""
    nic_add_bytes_s: float | None = None
    """What the NIC sums a second: P_FPGA. None: as much as the worker."""
    memory_bytes_s: float
    """Bytes copied a second: what BW_pcie is where the NIC is a process on the same memory."""
    update_bytes_s: float
    """Bytes of parameters updated a second, by stochastic gradient descent with momentum."""
    alpha: float
    """Share of a link that is payload, without compression."""
    latency_s: float
    """From program to program through both NICs, one way, on a link without delay."""
    stream_bytes_s: float | None = None
    """What two NICs carry of a stream at most, uncompressed; None: as much as the link."""
    codecs: dict[str, CodecFigures] = field(default_factory=dict)
    data: str = ""
    """What codecs were measured on."""

    def __post_init__(self) -> None:
        for name in ("P_Worker", "add_bytes_s", "memory_bytes_s", "update_bytes_s", "alpha"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)!r}")
        if self.latency_s < 0:
            raise ValueError(f"latency_s must be 0 or more, not {self.latency_s!r}")

    @property
    def update_s(self) -> float:
        """T_U of one parameter."""
        return BYTES / self.update_bytes_s

    def codec(self, name: str) -> CodecFigures:
        """Raises ValueError for one that was not measured."""
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
"""The paper's own system, as far as it says. Its figures: alpha and beta; PCIe Gen3 x8, 7.9 GB/s each way; adders of 8
lanes; compression at the rate of the link.

Not in the paper, and inferred by us from the percentages of its Fig. 4a (6 nodes, B = 448; all-reduce exposed for 38 %
of the baseline's time, for 24 % with the NIC, for 2 % with BFP): P_Worker; what a baseline's cores sum a second, which
stands for all that MPI does beside sending. Assumed: a clock of 250 MHz, an update at the memory's bandwidth, a latency
of 1 us."""


def default_path() -> Path:
    """Where `calibrate` writes and `predict` reads: under XDG_CONFIG_HOME, or ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME") or ""
    # The XDG base directory specification ignores paths that are not absolute.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    return root / "softnic" / "machine.json"


def save(machine: Machine, path: Path) -> None:
    """Makes the directory, if need be. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(machine), indent=2) + b"\n")


def load(path: Path) -> Machine:
    """Raises ValueError for what is no such file, OSError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Machine)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} has no parameters of a machine: {error}") from None
