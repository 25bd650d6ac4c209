"""The turn of a node, in C (native/nic/turn.h), and its control plane: what C asks of TCP, NIC and link.

C moves the data of established flows. It asks here for what is decision: segments that open or close a connection or
belong to none, timers, paths and codecs. Frames of a link in Python come and go through link_turn.py.
"""

from __future__ import annotations

from typing import Any

from softnic._native import lib
from softnic.link.base import Link
from softnic.nic.flows import agreed, attach
from softnic.nic.link_turn import NEVER, LinkTurn, define_calls, set_calls
from softnic.nic.nic import Nic, add_counts
from softnic.nic.observer import NodeObserver
from softnic.nic.offload import PLAIN
from softnic.packet.segment import Segment
from softnic.tcp.flow import Flow
from softnic.tcp.host import Host
from softnic.tcp.output import report_gaps

_CALLS = ("expire", "notify", "prepare", "output", "acknowledge", "loop")
_SERVING = ("attend", "report")
"""Those of a node that serves applications."""


class Turn(LinkTurn):
    """The turn of one node whose frames all pass through `link`. `capture` observes its segments."""

    def __init__(self, nic: Nic, host: Host, link: Link, capture: NodeObserver | None) -> None:
        self._host = host
        turn = nic.turn
        set_calls(turn.control, _CALLS)
        host.collect = lambda counters: add_counts(counters, turn.counts, "host_")
        turn.schedule = host.tcp.scheduler.c
        super().__init__(nic, link, capture)

    @property
    def is_due(self) -> bool:
        """Whether there is something to do at once."""
        turn, schedule = self.c, self.c.schedule
        return bool(turn.has_frames or schedule.loopback.first or (schedule.ready.first and not turn.is_full))

    def settle(self) -> None:
        super().settle()
        due = self._host.next_request()
        self.c.requests_at = NEVER if due is None else due

    def _path_epoch(self) -> int:
        return self._host.address_changes + 1

    # What C asks for, in the words of `sn_control`

    def on_receive(self, has_batch: bool, now: float) -> int:
        nic, turn = self._nic, self.c
        if not nic.loopback:
            turn.has_frames = False
            return super().on_receive(has_batch, now)
        frames = nic.loopback.popleft()
        turn.has_frames = bool(nic.loopback)
        return self._use(frames, is_looped=True)

    def on_run(self, index: int, now: float) -> None:
        nic, host, turn, batch = self._nic, self._host, self.c, self.c.batch
        nic.rx.use(batch.data, batch.size, batch.offsets, batch.lengths)
        for item in nic.receive_run(index, batch.is_looped):
            if isinstance(item, Segment):
                if self._capture is not None:
                    self._capture.received(item, now)
                host.receive_segment(item, now)
                flow = host.tcp.lookup((item.src, item.sport, item.dport))
                if flow is not None and flow.established:
                    turn.owes_reports |= flow.dup_acks_pending > 0
                    if not self._knows_path(flow):
                        self._prepare(flow, now)  # so that C takes what comes next
            else:
                if self._capture is not None:
                    self._capture.frame(item, now, outgoing=False)
                host.receive_frame(item, now)
                self._pass_on(item)
        self.settle()

    def share(self, queue: int, queues: int, inboxes: Any, event: int) -> None:
        """Take the flows of one queue of `queues`, and pass frames of others on through `inboxes`, an array with the
        inbox of each queue. The eventfd `event` reports this one's."""
        turn = self.c
        turn.queue, turn.queues, turn.inboxes, turn.inbox_event = queue, queues, inboxes, event

    def _pass_on(self, frame: bytes) -> None:
        """Do nothing: there is no other queue that a frame may concern."""

    def on_expire(self, flow: Any, now: float) -> None:
        tcp = self._host.tcp
        tcp.expire(tcp.scheduler.flow_at(flow), now)
        self.settle()

    def on_notify(self, flow: Any, what: int) -> None:
        connection = self._host.tcp.scheduler.flow_at(flow)
        if what & lib.SN_FLOW_WRITABLE:
            connection.on_writable()
        if what & lib.SN_FLOW_READABLE:
            connection.on_readable()

    def on_prepare(self, flow: Any, now: float) -> None:
        self._prepare(self._host.tcp.scheduler.flow_at(flow), now)

    def on_output(self, ring: Any, space: int, now: float) -> int:
        tcp = self._host.tcp
        tcp.link_full_at = self.c.link_full_at
        sent = tcp.scheduler.serve_first(ring, space, now)
        self.settle()
        return sent

    def on_acknowledge(self, flow: Any, now: float) -> None:
        report_gaps(self._host.tcp.scheduler.flow_at(flow), now)

    def on_loop(self, first: int) -> None:
        self._nic.loop_back(self._nic.last_cut().select(slice(first, None)))

    def on_advance_requests(self, now: float) -> None:
        self._host.advance_requests(now)
        self.settle()

    def on_attend(self, now: float) -> None:
        """Do nothing: readers and writers are served between `receive` and `send`."""

    def on_report(self, now: float) -> None:
        """Do nothing."""

    # Paths and codecs

    def _knows_path(self, flow: Flow) -> bool:
        return flow.nic is not None and flow.nic.path_epoch == self.c.path_epoch

    def _prepare(self, flow: Flow, now: float) -> None:
        """Look up the path of an established flow, and the codec of the tag that it sends next."""
        nic = self._nic
        state = flow.nic or attach(flow)
        if not self._find_path(flow, now):
            return
        state.path_epoch = self.c.path_epoch
        codecs = agreed(flow, nic.codecs)
        state.peer_codecs = -1 if codecs is None else codecs
        buffer = flow.snd.buffer
        number = lib.sn_send_buffer_tag_range(buffer.c, flow.next_sent()).tag
        tag = buffer.tag_numbered(number)
        choice, adaptive = PLAIN, None
        if nic.offloads.selects(tag.tos):
            choice, adaptive = nic.choose_codec(tag.tos, tag.codec, codecs, state)
        state.codec, state.parameter = choice.number, choice.parameter
        state.tag = -1 if adaptive is not None else number  # Python measures an adaptive one

    def _find_path(self, flow: Flow, now: float) -> bool:
        """Set the path of a flow. Return whether there is one."""
        state, ip = flow.nic, flow.peer[0]
        state.is_loopback = ip == self._nic.ip
        if state.is_loopback:
            state.destination, state.path_until = int.from_bytes(self._nic.mac), NEVER
            return True
        resolved = self._host.resolve(ip, now)
        if resolved is None:
            return False
        state.destination, state.path_until = int.from_bytes(resolved[0]), resolved[1]
        return True


define_calls((*_CALLS, *_SERVING), counting=("output",))
