"""Snapshots of NICs as the commands read them, their rates, and the document of `softnic stat --json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from softnic.commands import CommandError
from softnic.commands.nics import NO_NIC, chosen_nics, named_nics
from softnic.ipc.client import Client
from softnic.ipc.collectives_info import CommunicatorInfo, FailedCommunicatorInfo
from softnic.ipc.control import NicEvent, NicInfo, NicStats, StreamInfo
from softnic.ipc.membership import MembershipInfo
from softnic.ipc.snapshot import CollectiveTotals, MeetingInfo, PeerWay, ProcessInfo, QueueTotals, StreamTotals, dropped

RECOVERIES = ("retransmission_timeouts", "fast_retransmits", "tail_loss_probes")
"""Counters of TCP's answers to loss."""
_OFFLOADED = ("tx_offload_original_bytes", "tx_offload_encoded_bytes")


class Rates(msgspec.Struct, frozen=True):
    """Rates of a NIC per second, between two snapshots. Wire bytes are those of frames."""

    seconds: float
    """Between the two snapshots."""
    tx_bytes: float
    rx_bytes: float
    tx_wire_bytes: float
    rx_wire_bytes: float
    tx_frames: float
    rx_frames: float
    busy: float | None
    """Utilization of an emulated link, 0..1."""
    cpu: float
    """CPU time of the NIC's process: 1 is one core."""
    ratio: float | None
    """Original to encoded bytes of the tagged data sent; None if there was none."""
    recoveries: float
    """TCP's answers to loss: timeouts, fast retransmissions and tail loss probes."""
    drops: float
    """Frames, segments and datagrams dropped."""


class NicReport(msgspec.Struct, frozen=True):
    """One NIC in the document of `softnic stat --json`."""

    schema: Literal[1]
    """Version of this document. Later versions of softnic add fields; a change of any other kind changes this."""
    nic: NicInfo
    process: ProcessInfo
    counters: dict[str, int]
    """By name, all of them."""
    events: list[NicEvent]
    """The latest, oldest first."""
    totals: StreamTotals
    collectives: CollectiveTotals
    streams: list[StreamInfo]
    queues: list[QueueTotals]
    peers: int
    """Number of nodes that the NIC exchanges frames with."""
    ways: list[PeerWay]
    """How frames reach the first 32 of them, by address."""
    meeting: MeetingInfo | None
    """The job whose nodes the NIC meets; null: its peers are configured."""
    memberships: list[MembershipInfo]
    """Of processes that are members of elastic jobs."""
    communicators: list[CommunicatorInfo]
    """The ranks whose collectives the NIC executes: 64 at most, busy ones first."""
    failed: list[FailedCommunicatorInfo]
    """The latest failures of communicators, oldest first."""
    rates: Rates | msgspec.UnsetType = msgspec.UNSET
    """With --seconds or --watch, for a NIC that was there before."""


class NicReader:
    """Reads the NICs with these control sockets, or in SOFTNIC_NIC, or of all clusters of this user."""

    def __init__(self, paths: Sequence[str] | None) -> None:
        self._named = named_nics(paths)
        self._clients: dict[str, Client] = {}

    def read(self) -> list[NicStats]:
        """Return the statistics of the NICs named, which must all answer, or of those found, which may be stopping.

        Raises OSError for a NIC that does not answer, and CommandError if none is found.
        """
        found = []
        for path in chosen_nics(self._named):
            try:
                found.append(self._read(path))
            except OSError:
                if self._named:
                    raise
                self._clients.pop(path, None)
        if not found:
            raise CommandError(NO_NIC)
        return found

    def _read(self, path: str) -> NicStats:
        client = self._clients.get(path)
        if client is None:
            client = self._clients[path] = Client(path)
        return client.stats()

    def close(self) -> None:
        """Close the connections to the NICs."""
        for client in self._clients.values():
            client.close()


def rates_of(before: Sequence[NicStats], after: Sequence[NicStats]) -> list[Rates | None]:
    """Return the rates of each NIC of `after` that is in `before` too, with time between the two."""
    return [None if first is None else _rates(first, last) for first, last in paired(before, after)]


def paired(before: Sequence[NicStats], after: Sequence[NicStats]) -> Iterator[tuple[NicStats | None, NicStats]]:
    """Return each NIC of `after` with its earlier snapshot, if there is one."""
    known = {each.info.pid: each for each in before}
    for each in after:
        first = known.get(each.info.pid)
        yield None if first is None or each.process.uptime <= first.process.uptime else first, each


def ratio_between(original: int, encoded: int) -> float | None:
    """Return the compression ratio of tagged data; None if there was none."""
    return original / encoded if encoded > 0 else None


def _rates(before: NicStats, after: NicStats) -> Rates:
    seconds = after.process.uptime - before.process.uptime
    first, last = before.counters, after.counters
    names = ("tx_bytes", "rx_bytes", "tx_wire_bytes", "rx_wire_bytes", "tx_frames", "rx_frames")
    each = {name: (last[name] - first[name]) / seconds for name in names}
    limit = after.info.rate_bps
    original, encoded = (last[name] - first[name] for name in _OFFLOADED)
    return Rates(
        seconds,
        **each,
        busy=None if limit is None else 8 * each["tx_wire_bytes"] / limit,
        cpu=(after.process.cpu - before.process.cpu) / seconds,
        ratio=ratio_between(original, encoded),
        recoveries=sum(last.get(name, 0) - first.get(name, 0) for name in RECOVERIES) / seconds,
        drops=(dropped(last) - dropped(first)) / seconds,
    )


def document(stats: Sequence[NicStats], rates: Sequence[Rates | None]) -> list[dict[str, Any]]:
    """Return the document of --json: a `NicReport` for each NIC."""
    reports = [
        NicReport(
            schema=1,
            nic=each.info,
            process=each.process,
            counters=each.counters,
            events=each.events,
            totals=each.totals,
            collectives=each.collectives,
            streams=each.streams,
            queues=each.queues,
            peers=each.peers,
            ways=each.ways,
            meeting=each.meeting,
            memberships=each.memberships,
            communicators=each.communicators,
            failed=each.failed,
            rates=msgspec.UNSET if rate is None else rate,
        )
        for each, rate in zip(stats, rates, strict=True)
    ]
    plain: list[dict[str, Any]] = [_untagged(report) for report in msgspec.to_builtins(reports)]
    return plain


def _untagged(report: dict[str, Any]) -> dict[str, Any]:
    """Remove what tells messages of the control protocol apart."""
    for each in (report["nic"], *report["streams"]):
        del each["type"]
    return report


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document of --json."""
    found = msgspec.json.schema(list[NicReport])
    for each in found["$defs"].values():
        if each.get("properties", {}).pop("type", None):
            each["required"].remove("type")
    return found
