"""What NICs sent, by their counters."""

from __future__ import annotations

import operator
from dataclasses import astuple, dataclass

from softnic.cluster.cluster import Cluster


@dataclass(frozen=True)
class NicTraffic:
    """Bytes that NICs sent since they started, or between two moments. Retransmissions count."""

    original: int
    """TCP payload as applications wrote it."""
    payload: int
    """TCP payload as it crossed the network: tagged ranges compressed, payload headers included."""
    wire: int
    """Ethernet frames: payload, all headers, acknowledgements."""
    frames: int

    @classmethod
    def of_node(cls, cluster: Cluster, node: int) -> NicTraffic:
        counters = cluster.stats(node).counters
        saved = counters["tx_offload_original_bytes"] - counters["tx_offload_encoded_bytes"]
        original = counters["tx_bytes"]
        return cls(original, original - saved, counters["tx_wire_bytes"], counters["tx_frames"])

    @classmethod
    def of(cls, cluster: Cluster) -> NicTraffic:
        """Return the sum over all nodes."""
        return sum((cls.of_node(cluster, node) for node in range(cluster.nodes)), cls(0, 0, 0, 0))

    def __add__(self, other: NicTraffic) -> NicTraffic:
        return NicTraffic(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, earlier: NicTraffic) -> NicTraffic:
        return NicTraffic(*map(operator.sub, astuple(self), astuple(earlier)))

    @property
    def ratio(self) -> float:
        """Compression ratio of the payload."""
        return self.original / self.payload if self.payload else 1.0
