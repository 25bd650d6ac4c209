"""The description of a cluster in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from softnic.collectives import pairs
from softnic.link.emulation_spec import COALESCE_S, EmulationSpec
from softnic.nic.nic import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Nodes on one switch. All links are alike in both directions, but for the rates of those in `rates_bps`."""

    nodes: int
    rate_bps: float = 1e9
    rates_bps: Mapping[int, float] = field(default_factory=dict)
    """By node, where they differ."""
    delay_s: float = 50e-6
    coalesce_s: float = COALESCE_S
    """Shortest interval between two batches of frames on a link (EmulationSpec)."""
    mtu: int = 1500
    mode: Mode = "fill"
    """How the NICs cut compressed segments into frames (Nic)."""
    loss: float = 0.0
    seed: int = 0
    connect: str = ""
    """Which pairs of nodes connect before the first call: `all`, or those `needed` for a barrier; empty: as their
    number says (softnic/collectives/pairs.py)."""

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError(f"a cluster has 1 node or more, not {self.nodes}")
        pairs.is_full(self.nodes, self.connect)
        for node in (-1, *self.rates_bps):
            self.emulation(node)

    @property
    def is_full(self) -> bool:
        """Whether each pair of nodes connects before the first call. Raises ValueError for an unknown choice."""
        return pairs.is_full(self.nodes, self.connect)

    def rate_of(self, node: int) -> float:
        """Return the rate of a node's link."""
        return self.rates_bps.get(node, self.rate_bps)

    def emulation(self, node: int) -> EmulationSpec:
        """Return the properties of a node's link. Raises ValueError for impossible ones."""
        return EmulationSpec(
            rate_bps=self.rate_of(node), delay_s=self.delay_s, coalesce_s=self.coalesce_s, loss=self.loss
        )
