"""One connection: its state, and what its owner can do with it.

The protocol itself stands in arrives.py (segments), output.py (sending) and timers.py (time); they share the state
kept here. Nothing here sends: the owner's calls mark what is to be sent, and the layer asks for it (`TcpStack.output`).
"""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING

from softnic.packet import ipv4
from softnic.packet.segment import ECN_BITS, Tag
from softnic.tcp.algorithms import ALGORITHMS
from softnic.tcp.autotune import ReceiveTuning, SendTuning
from softnic.tcp.congestion import Congestion
from softnic.tcp.delayed_ack import DelayedAck
from softnic.tcp.events import Closed, Readable, Writable
from softnic.tcp.info import ConnectionInfo, info_of
from softnic.tcp.output import send_reset
from softnic.tcp.pacing import Pacer
from softnic.tcp.rack import Rack
from softnic.tcp.rcv import Receive
from softnic.tcp.recovery import Recovery
from softnic.tcp.rto import RetransmissionTimeout
from softnic.tcp.snd import Send
from softnic.tcp.state import AFTER_OUR_FIN, HANDSHAKE, State
from softnic.tcp.timestamps import Timestamps

if TYPE_CHECKING:
    from softnic.tcp.listener import Listener
    from softnic.tcp.stack import TcpStack

TURN_BYTES = 128 << 10
"""Of frames that a connection sends before the next one's turn comes, where several want to send."""
LEAST_TURN_BYTES = 16 << 10
"""What is left of a turn and not worth a segment: it is kept for the next one."""
_WRITABLE = frozenset({*HANDSHAKE, State.ESTABLISHED, State.CLOSE_WAIT})


class Connection:
    """Addresses are (IPv4 address, port), both in host order. Made by `Host.connect` and `Listener.accept`."""

    NEVER = float("inf")

    def __init__(self, tcp: TcpStack, local: tuple[int, int], peer: tuple[int, int], now: float) -> None:
        config = tcp.config
        self.tcp = tcp
        self.local = local
        self.peer = peer
        self.state = State.CLOSED
        self.listener: Listener | None = None
        """Where it came in, until it is established."""
        self.error = 0
        """The errno it ended with."""
        self.error_message = ""
        self.nodelay = False
        """Short segments do not wait for ACKs (TCP_NODELAY)."""
        self.user_timeout_s = config.user_timeout_s
        self.orphaned = False
        """Nobody owns it any more (`close`)."""

        self.snd = Send(config.send_buffer)
        self.snd.iss = tcp.initial_sequence(local, peer, now)
        self.rcv = Receive(config.receive_buffer, config.max_out_of_order, tcp.budget, tcp.counters.prune_out_of_order)
        self.rtt = RetransmissionTimeout(config.initial_rto_s, config.min_rto_s, config.max_rto_s)
        self.congestion: Congestion = ALGORITHMS[config.congestion](config.mtu + 14)
        self.recovery = Recovery()
        self.rack = Rack()
        self.pacer = Pacer()
        self.use_sack = False
        """Both sides' SYNs permitted SACK (RFC 2018, section 2)."""
        self.timestamps = Timestamps(tcp.timestamp_offset(peer[0]))
        self.use_timestamps = False
        self.receive_tuning = ReceiveTuning(config.receive_buffer_max, tcp.budget)
        self.send_tuning = SendTuning(config.send_buffer, config.send_buffer_max, tcp.budget)
        self.own_scale = config.window_scale
        self.peer_scales = False
        """The peer's SYN offered window scaling."""

        self.ack_pending = False
        self.delayed_ack = DelayedAck(config.ack_delay_s)
        self.dup_acks_pending = 0
        """Duplicate ACKs to send, one for each frame that came out of order."""
        self.syn_pending = False
        self.queued = False
        """Waits in the layer's row of connections that have something to send."""
        self.turn_bytes = TURN_BYTES
        """Wire bytes that it may still send in its turn."""
        self.persisting = False
        """`rto_at` is the persist timer (RFC 9293, section 3.8.6.1)."""
        self.blocked = False
        """The NIC took nothing when there was something to send: the peer's MAC is not known."""
        self.rto_at = self.NEVER
        self.pto = self.NEVER
        """When a tail loss probe goes."""
        self.reo_timer = self.NEVER
        """When what is late only counts as lost."""
        self.pacing_timer = self.NEVER
        """When pacing lets something leave that waits for nothing else."""
        self.close_at = self.NEVER
        """End of TIME-WAIT, or of an orphan's patience."""
        self.gap_at = self.NEVER  # when what came out of order is dropped
        self.trim_at = self.NEVER
        """When it may have been idle for so long that it gives memory back (idle.py)."""
        self.keepalive_at = self.NEVER
        self.keepalive: tuple[float, float, int] | None = None
        self.keepalive_probes = 0
        self.scheduled_at = self.NEVER
        """The layer will look at the timers no later than this."""

        self.syn_sent_at = now
        self.last_heard = now
        self.last_sent_at = now
        self.unacked_since = now
        """Since when the peer owes us an acknowledgement."""
        self.last_ack_sent = 0
        self.last_challenge = float("-inf")
        self.soft_error: tuple[int, str] | None = None
        """Why the peer may be silent: what ARP or ICMP have said since it was last heard, as errno and words."""
        self.path_mtu = 0
        """IPv4 bytes that a frame to the peer may have; 0: as many as the link carries."""
        self.path_mtu_until = self.NEVER
        """When longer ones are tried again."""
        self.reported_mtu: tuple[int, int] | None = None
        """What ICMP says of it, and of the segment at which position: not believed yet (path_mtu.py)."""
        self.retransmits = 0
        self.frames_sent = 0
        self.frames_received = 0
        self.wire_bytes_sent = 0
        self._readable = Readable(self)
        self._readable_told = False
        self._wants_space = False
        self._ended = False

    # Writing

    def write_space(self) -> memoryview:
        """Contiguous free space of the send buffer, to be filled and then reported by `wrote`.

        Empty if the buffer is full (a `Writable` event follows) or nothing may be written. Valid until the next call
        of any method of the stack.
        """
        if self.state not in _WRITABLE or self.snd.fin_queued:
            return memoryview(b"")
        space = self.snd.buffer.write_space()
        if not space:
            self._wants_space = True
        return space

    def wrote(self, count: int) -> None:
        """The first `count` bytes of `write_space` are part of the stream now."""
        self.snd.buffer.wrote(count)
        if count:
            self.tcp.wake(self)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Copies what fits of `data` into the send buffer. Returns how many bytes that was."""
        total = 0
        with memoryview(data) as whole, whole.cast("B") as view:
            while total < len(view):
                space = self.write_space()
                count = min(len(space), len(view) - total)
                if not count:
                    break
                space[:count] = view[total : total + count]
                self.wrote(count)
                total += count
        return total

    def send_zerocopy(self, memory: memoryview, offset: int, size: int) -> bool:
        """Appends bytes that stay where they are. Returns False if nothing may be written."""
        if self.state not in _WRITABLE or self.snd.fin_queued:
            return False
        self.snd.buffer.send_zerocopy(memory, offset, size)
        self.tcp.wake(self)
        return True

    @property
    def bytes_written(self) -> int:
        """Bytes of the stream so far, which is the offset of the next one."""
        return self.snd.buffer.end - 1

    @property
    def tag_set(self) -> Tag:
        """The tag that was set last."""
        return self.snd.buffer.last_tag

    def tag(self, tag: Tag, offset: int | None = None) -> None:
        """Tags the stream from byte `offset` on (None: the next one to be written), which may lie ahead.

        The same tag again changes nothing. The two low bits of its ToS are ECN's, which this TCP does not do, and stay
        zero (RFC 3168, section 6.1.1). Raises ValueError for an offset already written or before the last tag.
        """
        if tag.tos & ECN_BITS:
            tag = tag._replace(tos=tag.tos & ~ECN_BITS)
        position = self.snd.buffer.end if offset is None else offset + 1
        self.snd.buffer.tag(tag, position, tag.tos in self.tcp.offload_tos)
        self.tcp.wake(self)

    def set_blocks(self, blocks: bool) -> None:
        """Whether tagged ranges are sent in whole stretches of 64 bytes only, but for their ends.

        For writers that fill every stretch in the end, and whose codec may have blocks: then how much was there to be
        sent at what moment makes no difference to what the floats decode to.
        """
        if blocks != self.snd.buffer.blocks:
            self.snd.buffer.blocks = blocks
            self.tcp.wake(self)

    def shutdown_write(self) -> None:
        """Queues a FIN behind what is written. Reading goes on."""
        if self.state not in _WRITABLE or self.snd.fin_queued:
            return
        self.snd.fin_queued = True
        self.state = AFTER_OUR_FIN.get(self.state, self.state)
        self.tcp.wake(self)

    # Reading

    @property
    def received(self) -> deque[memoryview]:
        """Bytes in order, not consumed yet. To be read only; a view stays valid for as long as it is held."""
        return self.rcv.received

    @property
    def eof(self) -> bool:
        """The peer will send nothing after what is in `received`."""
        return self.rcv.eof

    def consume(self, count: int) -> None:
        """Takes `count` bytes from the front of `received`. Raises ValueError if there are not so many."""
        self.rcv.consume(count)
        self._readable_told = False
        if self.rcv.wants_update() and self.state not in HANDSHAKE:
            self.ack_pending = True
            self.tcp.wake(self)

    def recv(self, limit: int) -> bytes:
        """At most `limit` received bytes, which are consumed; empty if there are none now."""
        parts = []
        left = limit
        for view in self.rcv.received:
            parts.append(bytes(view[:left]))
            left -= len(parts[-1])
            if not left:
                break
        data = b"".join(parts)
        if data:
            self.consume(len(data))
        return data

    # Ending

    def close(self, now: float) -> None:
        """Gives the connection up: what is written is still sent, then a FIN; bytes that come now cause a reset.

        Received bytes that nobody read cause one at once (RFC 1122, section 4.2.2.13).
        """
        if self.orphaned or self._ended:
            return
        if self.rcv.unread or self.state in (State.CLOSED, State.SYN_SENT):
            self.abort(now)
            return
        self.orphaned = True
        self.shutdown_write()
        self.close_at = now + self.tcp.config.orphan_timeout_s
        self.tcp.schedule(self)

    def abort(self, now: float, error: int = 0, message: str = "") -> None:
        """Ends the connection at once, with a RST if the peer knows of it. `error` is what its owner is told."""
        if self.state not in (State.CLOSED, State.SYN_SENT, State.TIME_WAIT):
            send_reset(self, now)
        self.finish(error, message)

    # For the protocol's parts

    @property
    def has_output(self) -> bool:
        """Whether there is something that it would send, if windows allow."""
        snd = self.snd
        return (
            snd.snd_nxt < snd.buffer.end + snd.fin_queued
            or self.ack_pending
            or self.dup_acks_pending > 0
            or snd.scoreboard.lost > 0
            or self.syn_pending
        )

    @property
    def deadline(self) -> float:
        return min(
            self.rto_at,
            self.pto,
            self.reo_timer,
            self.pacing_timer,
            self.close_at,
            self.keepalive_at,
            self.delayed_ack.at,
            self.gap_at,
            self.trim_at,
        )

    def set_keepalive(self, settings: tuple[float, float, int] | None, now: float) -> None:
        """(idle seconds, interval seconds, count), all positive, or None for off (SO_KEEPALIVE, TCP_KEEP...)."""
        if settings is not None and min(settings) <= 0:
            raise ValueError("keepalive times and counts are positive")
        self.keepalive = settings
        self.keepalive_probes = 0
        self.keepalive_at = self.NEVER if settings is None or self._ended else now + settings[0]
        self.tcp.schedule(self)

    def set_congestion(self, name: str) -> None:
        """Another algorithm (`ALGORITHMS`) goes on with the window that there is. KeyError for an unknown one."""
        if name != self.congestion.name:
            self.congestion = ALGORITHMS[name](self.congestion.smss, self.congestion)

    def established(self) -> None:
        self.state = State.ESTABLISHED
        if self.snd.fin_queued:
            self.state = State.FIN_WAIT_1
        self.rcv.negotiated(self.own_scale if self.peer_scales else 0)

    def tell_readable(self) -> None:
        if not self._readable_told:
            self._readable_told = True
            self.tcp.events.append(self._readable)

    def tell_writable(self) -> None:
        """Says so once after `write_space` was empty, when a quarter of the buffer is free."""
        if not self._wants_space:
            return
        snd = self.snd
        if snd.buffer.end - snd.snd_nxt < snd.mss:
            self.send_tuning.short(snd.buffer, snd.snd_una, snd.snd_nxt)
        if 4 * snd.buffer.free >= snd.buffer.capacity:
            self._wants_space = False
            self.tcp.events.append(Writable(self))

    def enter_time_wait(self, now: float) -> None:
        """Both FINs are acknowledged; what is left is to acknowledge the peer's again if ours was lost."""
        self.state = State.TIME_WAIT
        self.rto_at = self.pto = self.reo_timer = self.pacing_timer = self.keepalive_at = self.NEVER
        self.close_at = now + self.tcp.config.time_wait_s
        self._clear()
        self._tell_closed(0)
        self.tcp.time_waits(self)
        self.tcp.schedule(self)

    def _clear(self) -> None:
        """Nothing is sent or put together any more."""
        self.trim_at = self.gap_at = self.NEVER
        self.snd.buffer.clear()
        self.rcv.clear()
        self.send_tuning.end(self.snd.buffer)
        self.receive_tuning.end()

    def finish(self, error: int, message: str) -> None:
        """CLOSED, for whatever reason."""
        if self.state is State.CLOSED and self._ended:
            return
        self.state = State.CLOSED
        self.rto_at = self.pto = self.reo_timer = self.pacing_timer = self.close_at = self.keepalive_at = self.NEVER
        self._clear()
        self.snd.scoreboard.clear()
        self.ack_pending = False
        self.delayed_ack.on_pure_ack()
        self.dup_acks_pending = 0
        if not self._ended:
            self.error, self.error_message = error, message
        self.tcp.forget(self)
        if self.listener is not None:  # back to LISTEN: nobody knew of it
            self.listener.half_open.discard(self)
            self.listener = None
            self._ended = True
        self._tell_closed(error)

    def _tell_closed(self, error: int) -> None:
        if self._ended:
            return
        self._ended = True
        if error:
            self.tcp.counters.connections_failed += 1
        self.tcp.events.append(Closed(self, error))

    def time_out(self, waited_s: float) -> None:
        """The peer has not answered for so long."""
        if self.soft_error is not None:
            self.finish(*self.soft_error)
        else:
            self.finish(errno.ETIMEDOUT, f"{self.peer_name} did not answer for {waited_s:.1f} s")

    @property
    def peer_name(self) -> str:
        return f"{ipv4.text(self.peer[0])}:{self.peer[1]}"

    def info(self, now: float) -> ConnectionInfo:
        """A snapshot."""
        return info_of(self, now)
