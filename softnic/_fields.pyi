"""The fields of flows (native/tcp/flow.h) as attributes; the classes derived from these declare them."""

from typing import Any, Self

class Memory:
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...

class _View:
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def address(self) -> int: ...
    def copy_fields(self, other: Self, /) -> None: ...
    def move_to(self, memory: Memory, /) -> None: ...

class AckFields:
    @property
    def address(self) -> int: ...
    def begin(self, now: float, flight_size: int, /) -> None:
        """Forgets the news of the last acknowledgement."""

class PortFields:
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    @property
    def address(self) -> int: ...

class ConnectionFields(_View):
    def heard(self, position: int, stamp: int, now: float, /) -> bool:
        """Notes that the peer is alive, and the timestamp to echo (RFC 7323, section 5.3, R3); -1: there is none.

        The timestamp of a retransmission counts too, if our ACK was lost: the peer would measure too long a round trip.
        Returns whether there is a soft error.
        """

    def begin_ack(self, ack: AckFields, una: int, now: float, /) -> bool:
        """Begins the news of an acknowledgement; if `una` is beyond `snd_una`, releases what it acknowledges.

        Returns whether it is.
        """

    def measure(self, ack: AckFields, advanced: bool, echo: int, /) -> None:
        """Takes a round-trip sample; `echo` is the timestamp echoed, 0 without one."""

    def is_repairing(self) -> bool:
        """Whether a loss, a SACK block or a probe is known."""

    def arrived(self, ack: AckFields, /) -> None:
        """Counts the news of an acknowledgement, and adds the state after it."""

    def look_for_losses(self, now: float, /) -> bool:
        """Lets RACK mark losses, and sets its timer. Returns whether the flow is to be scheduled."""

    def begin_recovery(self) -> None:
        """Starts fast recovery."""

    def acknowledged(self, ack: AckFields, advanced: bool, dsack: bool, echo: int | None, /) -> int:
        """Does all that follows on the news of an acknowledgement; `echo` is the timestamp echoed.

        Returns what is left to do: SN_SCHEDULE, SN_RECOVERS and SN_UNDONE.
        """

    def arm_rto(self, now: float, /) -> bool:
        """(Re)starts the retransmission or persist timer. Returns whether the flow is to be scheduled."""

    def arm_pto(self, now: float, /) -> bool:
        """Sets the time of a tail loss probe unless a loss is known. Returns whether the flow is to be scheduled."""

    def rearm_after_ack(self, now: float, advanced: bool, /) -> bool:
        """Restarts the timers after an acknowledgement. Returns whether the flow is to be scheduled."""

    def frame_budget(self, unsent: int, frames: int, link_full_at: float, now: float, /) -> int:
        """Returns the frames that congestion control and pacing permit now, at most `frames`.

        At least one if nothing is in flight, or if recovery must send; 0 if the next burst is not due yet, or -1 if the
        flow is to be scheduled for it.
        """

    def segment_end(self, start: int, budget: int, force: bool, /) -> int:
        """Returns where a segment of new data from `start` ends, in at most `budget` frames.

        That is `start` if it has to wait for more data, or carries a FIN alone; -1 if it waits for the peer's window.
        `force`: it does not wait, however short.
        """

    def next_sent(self) -> int:
        """Returns the position from which data is sent next: a loss, or `snd_nxt`."""

    def again_end(self, start: int, stop: int, budget: int, /) -> int:
        """Returns where the retransmission of [start, stop) ends that is sent now, in at most `budget` frames.

        In a tagged range it begins at the cut before `start`, and may end behind `stop`.
        """

    def carried(self, end: int, frames: int, wire_bytes: int, now: float, /) -> bool:
        """Counts a segment with data up to `end`, which has carried the ACK that was due."""

    def sent_new(self, end: int, is_short: bool, wire_bytes: int, now: float, /) -> bool:
        """Accounts for the first transmission of [snd_nxt, end); `is_short`: the last frame is not full.

        Returns whether the flow is to be scheduled.
        """

    def sent_again(self, start: int, end: int, wire_bytes: int, now: float, /) -> object:
        """Accounts for a retransmission of [start, end); nothing of it if `end` is not behind `start`."""

class SendFields(_View):
    def position(self, acknowledgement: int, /) -> int:
        """Returns the position of an acknowledgement number."""

    def update_window(self, position: int, ack: int, field: int, scaled: bool, /) -> bool:
        """Takes the window of a segment unless the segment is older. Returns whether the window changed.

        `ack` is not below `snd_una`. A segment that acknowledges new data is not older, as in Linux: a peer that
        retransmits from before `snd_wl1` reports its window there, and the previous one would reach too far.
        """

class ReceiveFields(_View):
    def position(self, sequence: int, /) -> int:
        """Returns the position of a sequence number."""

    def accepts(self, position: int, length: int, /) -> bool:
        """Whether a segment overlaps the window, or is empty and lies inside it or at an edge."""

    def wants_update(self) -> bool:
        """Whether reading has opened the window by enough to send an update: an eighth of the buffer."""

class ScoreboardFields(_View):
    def sent(self, start: int, end: int, wire_bytes: int, now: float, /) -> object:
        """Appends bytes [start, end), sent for the first time."""

    def sent_again(self, start: int, end: int, wire_bytes: int, now: float, /) -> object:
        """Records that bytes [start, end) of the scoreboard were retransmitted."""

    def mark_app_limited(self) -> None:
        """The application has nothing more to send, although the window is not full."""

    def arrived(self, ack: AckFields, /) -> None:
        """Counts the news of an acknowledgement, after all of it was processed."""

    def acknowledge(self, una: int, ack: AckFields, /) -> None:
        """Removes everything before `una`, which has arrived."""

    def sack(self, start: int, end: int, ack: AckFields, /) -> object:
        """Marks bytes [start, end) as arrived out of order."""

    def mark_head_lost(self, wire_bytes: int, /) -> object:
        """Marks the first `wire_bytes` as lost if they are in flight, for peers without SACK."""

    def on_sack_reneging(self) -> None:
        """Reverts SACKED marks: the peer has dropped what it reported (RFC 2018, section 8)."""

    def undo_lost_marks(self) -> None:
        """Reverts LOST marks after a spurious retransmission."""

    def detect(self, sent_at: float, end: int, wait: float, now: float, /) -> float:
        """Marks ranges as lost that left before (`sent_at`, `end`), `wait` seconds ago.

        Returns when the others will be lost unless they arrive; infinity: there are none.
        """

    def time_out(self, rtt: float, window: float, now: float, /) -> None:
        """Marks the first range, and others sent `rtt` and `window` seconds ago, as lost."""

    def clear(self) -> None:
        """Removes everything at the end of the connection."""

class SendBufferFields(_View):
    def no_floats(self) -> None:
        """Treats tagged bytes as plain ones, for a peer without a compressing NIC: they may be cut anywhere.

        To be called before anything is sent.
        """

    def space(self) -> int:
        """Makes contiguous space for the next bytes at `end`, in memory of twice the capacity. Returns its size."""

    def reach(self, position: int, limit: int, flush: bool, /) -> int:
        """Returns where a segment from `position` ends, at most at `limit`."""

    def cut_at(self, position: int, /) -> object:
        """Records that a segment ended here, if that is an odd cut. Raises MemoryError."""

    def segment_start(self, position: int, /) -> int:
        """Returns where the segment with this byte starts: in a tagged range, at a cut."""

    def zerocopy_len(self, size: int, /) -> int:
        """Returns how many of the next `size` bytes may be sent without a copy; 0: some must be copied first."""

    def release(self, position: int, /) -> None:
        """Releases what no retransmission needs: everything before `position` is acknowledged."""

class ReassemblyFields(_View): ...

class RetransmissionTimeoutFields(_View):
    def sample(self, rtt_s: float, /) -> None:
        """Adds a round-trip sample (RFC 6298, sections 2.2 and 2.3)."""

    def back_off(self) -> None:
        """Doubles the timeout after the timer has expired."""

    def answered(self) -> None:
        """Ends backoff: new data was acknowledged."""

class CongestionFields(_View):
    def begin_bbr(self) -> None:
        """Sets BBR's fields before its first acknowledgement."""

    def on_loss(self, flight_size: int, /) -> None:
        """Sets `ssthresh` at the first loss of a window (RFC 5681). Losses do not change BBR's window."""

    def count_loss(self) -> None:
        """Counts a loss for "auto" (auto.py), before the window is reduced."""

    def on_timeout(self, flight_size: int, first: bool, /) -> None:
        """Reduces the window to one frame after a timeout; `first`: of this segment (RFC 5681, section 3.1)."""

    def restore(self, before: CongestionFields, /) -> None:
        """Undoes a needless reduction, which does not take rates back that BBR has measured since."""

    def on_ack(self, ack: Any, /) -> None:
        """Grows the window after an acknowledgement outside recovery."""

    def on_idle(self, idle_s: float, /) -> None:
        """Restarts after an idle time longer than a timeout, with what is still likely to be true of the path.

        A paced window is halved for every ten seconds, down to the initial one; slow start then leads to three quarters
        of what it was (RFC 2861, section 3.2). A window that is not paced would leave as a burst, and is the initial
        one again (RFC 5681, section 4.1). HyStart++ restarts (RFC 9406, section 4.3). BBR keeps what it measured for a
        minute, and the first round trip is as good as one of PROBE_RTT.
        """

    def pacing_rate(self, rtt: float, /) -> float | None:
        """Returns the pacing rate in wire bytes per second; None: not paced.

        Above window / round trip, so that pacing does not limit growth (as in Linux: 2 times in slow start, then 1.2
        times). The first window after an idle time is not paced: its round trip is not known yet.
        """

class HystartFields(_View):
    def restart(self) -> None:
        """Forgets all round trips."""

    def on_ack(self, una: int, nxt: int, rtt: float, /) -> int:
        """Returns by what the growth of slow start is divided; 0: it ends here (RFC 9406, section 4.2)."""

class RecoveryFields(_View):
    """Of a flow: `begin` and the others use its scoreboard, its congestion control and `snd_nxt`."""

    def begin(self) -> None:
        """Starts fast recovery from a loss."""

    def begin_after_timeout(self, again: bool, /) -> None:
        """Starts recovery from a timeout; `again`: the previous timeout brought no acknowledgement."""

    def sent(self, wire_bytes: int, /) -> None:
        """Counts what was sent, during recovery."""

    def sent_again(self, stamp: int | None, /) -> None:
        """Notes the timestamp of the first retransmission."""

    def window(self, arrived: int, advanced: bool, /) -> int:
        """Returns the congestion window after an acknowledgement in fast recovery (RFC 6937, section 3.1)."""

    def ends(self, una: int, /) -> bool:
        """Ends recovery if everything that was in flight is acknowledged. Returns whether it did."""

    def undo(self, echo: int | None, /) -> bool:
        """Handles the first acknowledgement of new data since the retransmission, which echoes timestamp `echo`.

        Returns whether the retransmission was needless; then recovery is over, and the window as before.
        """

class MinimumRttFields(_View):
    def sample(self, rtt_s: float, now: float, /) -> None:
        """Adds a sample."""

class RackFields(_View):
    def update(self, ack: AckFields, repeat_rtt: float | None, /) -> None:
        """Updates the state from an acknowledgement (RFC 8985, section 6.2, steps 1 to 3).

        `repeat_rtt` is the round trip of a retransmission according to the timestamp echo; None: unknown.
        """

    def duplicate(self, una: int, nxt: int, /) -> None:
        """Extends the reordering window after a D-SACK: it was too short (RFC 8985, section 6.2, step 4)."""

    def recovered(self) -> None:
        """Counts a recovery towards the end of the extension."""

    def window(self, scoreboard: ScoreboardFields, recovering: bool, smss: int, srtt: float, /) -> float:
        """Returns the reordering window in seconds (RFC 8985, section 6.2, step 4)."""

    def detect(self, scoreboard: ScoreboardFields, window: float, now: float, /) -> float:
        """Marks lost ranges (RFC 8985, section 6.2, step 5).

        Returns when the others will be lost unless they arrive.
        """

    def timed_out(self, scoreboard: ScoreboardFields, now: float, window: float, /) -> None:
        """Marks the first range, and others as old, as lost after a retransmission timeout (RFC 8985, section 6.3)."""

    def probed(self, end: int, repeats: bool, /) -> None:
        """Records a probe that ends at `end`; `repeats`: it is a retransmission."""

    def probe_answered(self, ack: int, /) -> bool:
        """Whether an acknowledgement shows that a probe has repaired a loss (RFC 8985, section 7.4.2)."""

    def probe_after(self, scoreboard: ScoreboardFields, smss: int, srtt: float, /) -> float:
        """Returns the probe timeout in seconds (RFC 8985, section 7.2); infinity: no probe is sent."""

class PacerFields(_View):
    def update(
        self, congestion: CongestionFields, rtt: RetransmissionTimeoutFields, link_full_at: float, now: float, /
    ) -> bool:
        """Sets the rate of what is sent from here on. Returns whether there is one.

        A link whose own queue was full within a round trip paces by itself, and evenly between streams.
        """

    def burst(self, smss: int, now: float, /) -> int:
        """Returns the number of frames that may leave now."""

    def woken(self, late_s: float, /) -> None:
        """Extends the next burst, by 8 ms at most: its timer was late by `late_s`."""

    def sent(self, wire_bytes: int, now: float, /) -> None:
        """Charges sent wire bytes, which postpones the next burst."""

class TimestampsFields(_View): ...

class DelayedAckFields(_View):
    def should_delay(self, frames: int, size: int, now: float, /) -> bool:
        """Returns whether the ACK of `size` bytes that arrived in order, in `frames` frames, waits until `at`."""

    def expired(self) -> None:
        """`at` has passed without a reply."""

    def on_pure_ack(self) -> None:
        """A bare ACK was sent."""

    def on_piggybacked(self, now: float, /) -> None:
        """Data was sent, and the ACK with it."""

class ReceiveTuningFields(_View):
    def advance(self, rcv: ReceiveFields, ahead: int, now: float, srtt_s: float, echoed_s: float | None, /) -> int:
        """Ends a round trip. Returns by how much the buffer is to grow, if that is above zero.

        `ahead`: bytes behind gaps.
        """

class SendTuningFields(_View): ...
class NicFlowFields(_View): ...
