"""BBR congestion control, for paths that lose frames without congestion
(draft-cardwell-iccrg-bbr-congestion-control-00, version 1, as in Linux).

Windows that shrink with each loss cannot fill such a path: at 0.1 % and 20 ms CUBIC and Reno keep some 40 frames in
flight (RFC 9438, section 5.2), a fortieth of what 1 Gbit/s needs. BBR measures the maximum delivery rate and the
minimum round trip, sends at that rate and keeps up to twice their product in flight, or one and a half times beside a
queue:

1. STARTUP: 2.89 times the measured rate, until it has not grown by a quarter for three round trips;
2. DRAIN: slower, until the queue that STARTUP built at the bottleneck is empty;
3. PROBE_BW: cycles of eight round trips, a quarter faster in one, a quarter slower in the next, then as measured;
4. PROBE_RTT: half of the product in flight for 200 ms in five seconds, if no round trip was as short since, and there
   was no pause. The minimum is that of ten seconds, so a probe beside a queue of others does not replace it.

What it takes from others is bounded as in version 2 (draft-cardwell-iccrg-bbr-congestion-control-02, section 4.6): if
more than 2 % of what was sent in a round trip, or of 500 frames, is lost, 0.7 of what was in flight, but not less than
0.7 of rate times round trip, becomes the bound of what is in flight; 0.85 of it except while a higher rate is looked
for, which then happens twice a second or less: until more than 2 % is lost again, or a quarter more than rate times
round trip is in flight. Meanwhile the bound grows in each round trip in which it is reached: by 16 frames, by 32,
by 64. All streams add the same and give up a part of what they have, so their shares become equal, and one soon
has what others leave. Fewer losses than that may have other causes, and change nothing unless there is a queue.

A loss beside a queue, so while round trips are over 1.25 times the least, means that the queue was full. Who fills it
with us may be CUBIC, which each look for a higher rate then costs a part of its window. So higher rates are looked for
as often as lets a CUBIC stream with as many frames in flight recover three fifths of that time in between: K of RFC
9438, section 4.2, or what Reno's growth takes if that is less; until six such times have passed without a loss, or the
queue is gone.

Windows are smaller than version 1's (2.89 products in STARTUP, then 2): 1.5 products while round trips are over 1.25
times the least, so with a queue, and no higher rate is looked for. Windows of two products fill a queue of one, and two
streams that fill it share by who came first: the rate that each measures is the window that it had. Without a queue,
two products let a stream repair losses, and a late turn catch up.

Rate and window outlast pauses of up to a minute, so that a connection that is used once a second does not begin anew
each time.

Rate samples follow draft-cheng-iccrg-delivery-rate-estimation-02: what arrived between two acknowledgements, divided by
the time between them or the time in which it was sent, whichever is longer.

Departures: rates are measured by sent ranges, not frames; the first round of recovery changes nothing; PROBE_BW begins
with a phase that depends on what has arrived, not on a random number.

The algorithm is C (native/tcp/bbr.c).
"""

from __future__ import annotations

from enum import IntEnum

from softnic.tcp.congestion import INFINITY, Congestion


class Mode(IntEnum):
    """As SN_BBR_STARTUP and so on in native/tcp/flow.h."""

    STARTUP = 0
    DRAIN = 1
    PROBE_BW = 2
    PROBE_RTT = 3


class Bbr(Congestion):
    """`ssthresh` is not used."""

    name = "bbr"
    number = 3

    mode: int
    """A `Mode`."""
    gain: float
    rate: float
    """Wire bytes per second: the maximum of the last ten rounds; 0 before the first sample."""
    least_rtt: float
    """The minimum of the last ten seconds; `recent_rtt`: of the last five."""
    least_rtt_at: float
    recent_rtt: float
    recent_rtt_at: float
    round: int
    round_ends: int
    full_rate: float
    full_rounds: int
    """Round trips since the rate last grew by a quarter, to `full_rate`."""
    phase: int
    phase_at: float
    probe_ends: float | None
    """When PROBE_RTT ends; None: not yet known."""
    limited_until: int
    """Ranges sent before `delivered` reached this were sent in PROBE_RTT: their rate is not the path's."""
    resume: int
    """The window before PROBE_RTT."""
    bound: int
    """What may be in flight; 0: it is not bounded."""
    lost_much: bool
    """That happened in this phase, which then ends."""
    bound_step: int
    """By how much it grows next."""
    counted_delivered: int
    """The scoreboard's `delivered` up to which losses are judged; `counted_lost`: its `lost_total` then."""
    counted_lost: int
    round_flight: int
    """The most that was in flight in this round trip."""
    crowded_at: float
    """When something was last lost beside a queue; `seen_lost`: the scoreboard's `lost_total` at the last look."""
    seen_lost: int

    def __init__(self, smss: int, before: Congestion | None = None) -> None:
        super().__init__(smss, before)
        self.ssthresh = INFINITY
        self.begin_bbr()
