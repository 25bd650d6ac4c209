"""The description of a cluster in virtual time."""

from __future__ import annotations

from dataclasses import dataclass

from softnic.link.emulation_spec import COALESCE_S, EmulationSpec
from softnic.nic.nic import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Nodes on one switch. All links are alike in both directions."""

    nodes: int
    rate_bps: float = 1e9
    delay_s: float = 50e-6
    coalesce_s: float = COALESCE_S
    """Shortest interval between two batches of frames on a link (EmulationSpec)."""
    mtu: int = 1500
    mode: Mode = "fill"
    """How the NICs cut compressed segments into frames (Nic)."""
    loss: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError(f"a cluster has 1 node or more, not {self.nodes}")
        self.emulation()

    def emulation(self) -> EmulationSpec:
        """Return the properties of a link. Raises ValueError for impossible ones."""
        return EmulationSpec(rate_bps=self.rate_bps, delay_s=self.delay_s, coalesce_s=self.coalesce_s, loss=self.loss)
