"""Pump: runs a NIC on an event loop. It feeds, drains, sends and re-arms one timer; it decides nothing.

This is the common part of both kinds of NIC: `Daemon` (daemon.py) serves applications, `TapNicDaemon` (tap.py) a
kernel. File descriptors that carry data are registered with the epoll instance of the loop's own selector
(selector.py), which calls `turn` with their events. Turns repeat while there is work; control requests come between.
"""

from __future__ import annotations

import asyncio
import errno
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from msgspec import to_builtins

from softnic import underlay
from softnic.capture.hook import CaptureHook
from softnic.ipc.control import NicInfo, NicStats, StreamInfo
from softnic.ipc.snapshot import CollectiveTotals, PeerWay, QueueTotals, StreamTotals
from softnic.link.forwarding import PeerPath
from softnic.link.reach.candidates import Candidate
from softnic.nic.adaptive_codec import Stopwatch
from softnic.nic.nic import NicOptions
from softnic.packet import ipv4
from softnic.packet.ethernet import mac_of
from softnic.underlay import Address
from softnicd.config import Config
from softnicd.control_server import ControlServer
from softnicd.event_log import EventLog
from softnicd.handlers import ControlHandlers
from softnicd.link_setup import open_links, random_source
from softnicd.memberships import Memberships
from softnicd.nic_keys import NicKeys
from softnicd.selector import AT_ONCE, NEVER, Selector
from softnicd.snapshots import ProcessStatistics

if TYPE_CHECKING:
    from softnicd.meeting import NicMeeting
    from softnicd.metrics_server import MetricsServer

MAX_PEERS = 65536
"""As many nodes as a /16 has: a bound on what one control socket can make a NIC remember."""
MAX_WAYS = 32
"""Peers whose ways are reported: as many as fit into a packet, beside the rest."""
RETRY_S = 0.1
"""Delay of the next turn after one that failed."""


class Pump(ABC):
    """A running NIC, without what it serves. It runs on `loop`, whose selector is given, until `close`.

    Raises OSError if the wire cannot be opened, and in `_serve` if the control socket cannot.
    """

    def __init__(self, config: Config, selector: Selector) -> None:
        self.config = config
        self.event_log = EventLog()
        self._selector = selector
        self._process = ProcessStatistics(self.now())
        self._metrics: MetricsServer | None = None
        self.metrics_address = ("", 0)
        """Of metrics over HTTP; port 0: none are served."""
        self._random = random_source(config.seed)
        self._links = open_links(config, self.event_log.record, self._random)
        self._wire = self._links[0].wire
        """Of the first queue, or of the only one."""
        self._peers = {mac_of(ip): ip for ip in config.peer_addresses}
        self.keys = NicKeys(
            config,
            self._links,
            self._held,
            now=self.now,
            ip_of=self._peers.__getitem__,
            end_connections=self._end_connections,
        )
        """Those of this NIC and its peers."""
        self._meeting: NicMeeting | None = None
        self.memberships = Memberships()
        self.server: ControlServer

    def _serve(
        self, handlers: ControlHandlers, on_disconnect: Callable[[object], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Opens the control socket and starts the turns. Raises OSError."""
        self.server = ControlServer(self.config.control, handlers, on_disconnect, self.event_log, loop)
        self._selector.turn = self.turn
        self.event_log.started(self.config.ip, self.server.took_over)

    def _nic_options(self) -> NicOptions:
        emulation = self.config.emulation_spec
        return {
            "offloads": self.config.offload_table,
            "mode": self.config.mode,
            # Costs a percent of the bytes, and lets the kernel take 64 frames at a time.
            "equal_sizes": self.config.mode == "fill",
            "codec_timer": Stopwatch(time.perf_counter),
            "link_rate_bps": None if emulation is None else emulation.rate_bps,
        }

    def now(self) -> float:
        return time.monotonic()

    def wake(self) -> None:
        """Requests a turn: something changed outside of one."""
        self._selector.due = AT_ONCE

    def turn(self, events: list[tuple[int, int]]) -> float:
        """Moves all data that can be moved, given epoll's events. Returns when the next turn is due."""
        try:
            due = self._move(events, self.now())
        except MemoryError:
            self.event_log.exhausted("out of memory: the turn is retried")
            due = self.now() + RETRY_S
        except Exception:
            self.event_log.internal_error("internal error in a turn")
            due = self.now() + RETRY_S
        return NEVER if due is None else due

    def close(self) -> None:
        """Ends the NIC, after the last frames have left."""
        self.server.close()
        if self._meeting is not None:
            self._meeting.close()
        if self._metrics is not None:
            self._metrics.close()
        self._selector.turn, self._selector.turn_in_c, self._selector.due = None, None, NEVER
        self._stop(self.now())
        for link in self._links:
            link.whole.close()

    def meet(self) -> None:
        """Meet the nodes of the job that the configuration names, until `close`. Raises OSError."""
        if self.config.meet:
            from softnicd.meeting import NicMeeting  # most NICs have configured peers

            self._meeting = NicMeeting(self, [link.wire for link in self._links], self._reached)

    def _reached(self) -> Mapping[bytes, PeerPath]:
        """How the first queue, which stands still, reaches each peer."""
        with self._held(0):
            return self._wire.reached

    def add_peer(
        self,
        ip: int,
        address: Address | None,
        keys: Sequence[str] = (),
        candidates: Sequence[Candidate] = (),
    ) -> None:
        """Adds a peer: at an address, or at the best of candidates that answers. Raises OSError."""
        if ip == self.config.address:
            raise OSError(errno.EINVAL, f"{ipv4.text(ip)} is this NIC's own address")
        if self._wire.peer_count >= MAX_PEERS:
            raise OSError(errno.ENOBUFS, f"the NIC has {MAX_PEERS} peers already")
        if keys:
            self.keys.set(ip, keys)
        for queue, link in enumerate(self._links):
            with self._held(queue):
                if candidates:  # an address of the peer is one of them
                    more = [] if address is None else [Candidate(address)]
                    link.wire.offer(mac_of(ip), [*candidates, *more])
                elif address is not None:
                    link.wire.add_peer(mac_of(ip), address)
        self._peers[mac_of(ip)] = ip
        self.wake()

    def retry_peer(self, mac: bytes) -> None:
        """Sends again to a peer at once what it has not acknowledged: it may be reached again."""
        for queue, link in enumerate(self._links):
            with self._held(queue):
                link.wire.note_back(mac, self.now())
        self.wake()

    @contextmanager
    def capture(self, queue: int) -> Iterator[CaptureHook]:
        """The captures of a queue, which stands still. Raises OSError (EINVAL)."""
        if not 0 <= queue < len(self._links):
            raise OSError(errno.EINVAL, f"the NIC has queues 0 to {len(self._links) - 1}, and no queue {queue}")
        with self._held(queue):
            yield self._links[queue].capture

    def _held(self, _queue: int) -> AbstractContextManager[None]:
        """A queue stands still: by itself, as long as a request is answered, if its turns are this loop's."""
        return nullcontext()

    def _end_connections(self, queue: int, ip: int, text: str) -> None:
        """Resets the connections of a queue, which stands still, to a node. A kernel's are not the NIC's."""
        del queue, ip, text

    def has_gone_on(self) -> bool:
        """Whether what does not run on this loop has gone on since the last call."""
        return True

    def names(self) -> dict[str, str]:
        return self.config.names

    def counters(self) -> dict[str, int]:
        metrics = {} if self._metrics is None else to_builtins(self._metrics.counters)
        meeting = {} if self._meeting is None else self._meeting.counters()
        return {**to_builtins(self.server.counters), **to_builtins(self.event_log.counters), **metrics, **meeting}

    @abstractmethod
    def _move(self, events: list[tuple[int, int]], now: float) -> float | None:
        """One turn. Returns when the next one is due; None: when an event comes."""

    @abstractmethod
    def _stop(self, now: float) -> None:
        """Ends the connections, and sends the last frames."""

    @abstractmethod
    def catch_up(self) -> None:
        """Processes what happened before a control request."""

    async def serve_metrics(self, address: tuple[str, int]) -> None:
        """Serves metrics over HTTP until `close`. Raises OSError, and ValueError without prometheus-client."""
        from softnicd.metrics import Exposition  # most NICs serve none
        from softnicd.metrics_server import MetricsServer

        self._metrics = MetricsServer(self.summary, Exposition().text, self.event_log, asyncio.get_running_loop())
        self.metrics_address = await self._metrics.open(address)

    def describe(self) -> NicInfo:
        """The NIC's description."""
        return self.info(self.totals()[1])

    def summary(self) -> NicStats:
        """The statistics without streams, communicators and events."""
        totals, unacknowledged = self.totals()
        return NicStats(
            self.info(unacknowledged),
            self.counters(),
            [],
            process=self._process.info(self.now()),
            totals=totals,
            collectives=self.collective_totals(),
            queues=self.queue_totals(),
            peers=self._wire.peer_count,
            ways=self._ways(),
            meeting=None if self._meeting is None else self._meeting.info(),
            memberships=self.memberships.infos(),
        )

    def _ways(self) -> list[PeerWay]:
        """How frames reach each peer. Where a peer has several addresses, the first queue stands for all."""
        ways, now = self._reached(), self.now()
        named = sorted((self._peers[mac], mac, way) for mac, way in ways.items())[:MAX_WAYS]
        return [
            PeerWay(
                ipv4.text(ip),
                underlay.text(way.address),
                underlay.family_name(way.address[0]),
                relayed=way.relayed,
                relay=self._meeting.relaying(way.address) if way.relayed and self._meeting is not None else "",
                age=0.0 if way.since is None else now - way.since,
                moves=way.moves,
                key=self.keys.fingerprint(mac),
            )
            for ip, mac, way in named
        ]

    @abstractmethod
    def info(self, unacknowledged: int) -> NicInfo:
        """The NIC's description, with the second result of `totals`."""

    @abstractmethod
    def totals(self) -> tuple[StreamTotals, int]:
        """Sums over all streams, and the number of connections with unacknowledged data."""

    def collective_totals(self) -> CollectiveTotals:
        """Sums over the collectives in progress."""
        return CollectiveTotals()

    def queue_totals(self) -> list[QueueTotals]:
        """What each queue does, where there are any."""
        return []

    @abstractmethod
    def stream_infos(self, after: int, limit: int) -> list[StreamInfo]:
        """At most `limit` streams with numbers above `after`, in order."""
