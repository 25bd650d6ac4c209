/* Recovery from losses: how much may be sent meanwhile, and its end; softnic/tcp/recovery.py describes it. */
#include "tcp/flow_steps.h"

static void enter(sn_recovery *recovery, int64_t state)
{
    recovery->state = state;
    recovery->is_open = state == SN_RECOVERY_OPEN;
}

/* Keeps the state for `undo`, unless an earlier retransmission is in flight: its answer would be ambiguous. */
static void remember(sn_flow *flow)
{
    sn_recovery *recovery = &flow->recovery;
    recovery->stamp = -1;
    recovery->may_undo = sn_scoreboard_sent_once(&flow->scoreboard);
    if (recovery->may_undo) {
        recovery->congestion = flow->congestion;
        recovery->hystart = flow->hystart;
    }
}

void sn_recovery_begin(sn_flow *flow)
{
    sn_recovery *recovery = &flow->recovery;
    const int64_t size = sn_scoreboard_size(&flow->scoreboard);
    remember(flow);
    sn_congestion_count_loss(flow);
    recovery->flight_size = size > 1 ? size : 1;
    recovery->arrived = recovery->sent_bytes = 0;
    sn_congestion_on_loss(&flow->congestion, size);
    enter(recovery, SN_RECOVERY_FAST);
    recovery->must_send = true;
    recovery->recover = flow->send.snd_nxt;
}

void sn_recovery_begin_after_timeout(sn_flow *flow, bool again)
{
    sn_recovery *recovery = &flow->recovery;
    if (!again && recovery->is_open)
        remember(flow);
    sn_congestion_on_timeout(&flow->congestion, sn_scoreboard_size(&flow->scoreboard),
                             !again && recovery->state != SN_RECOVERY_FAST);
    enter(recovery, SN_RECOVERY_LOSS);
    recovery->must_send = true;
    recovery->recover = flow->send.snd_nxt;
    recovery->duplicates = 0;
}

void sn_recovery_sent(sn_recovery *recovery, int64_t wire_bytes)
{
    if (recovery->is_open && !recovery->must_send)
        return;
    recovery->sent_bytes += wire_bytes;
    recovery->must_send = false;
}

void sn_recovery_sent_again(sn_recovery *recovery, sn_maybe_position stamp)
{
    if (recovery->stamp == -1 && recovery->may_undo)
        recovery->stamp = stamp;
}

int64_t sn_recovery_window(sn_flow *flow, int64_t arrived, bool advanced)
{
    sn_recovery *recovery = &flow->recovery;
    const int64_t target = flow->congestion.ssthresh, smss = flow->congestion.smss, pipe = flow->scoreboard.pipe;
    int64_t allowed;
    recovery->arrived += arrived;
    if (pipe > target) {
        const __int128 due = (__int128)recovery->arrived * target + recovery->flight_size - 1;
        allowed = (int64_t)(due / recovery->flight_size) - recovery->sent_bytes;
    } else { /* slow start towards the target while snd_una advances, what has arrived otherwise */
        const int64_t least = advanced ? arrived : 0, unsent = recovery->arrived - recovery->sent_bytes;
        allowed = (unsent > least ? unsent : least) + (advanced ? smss : 0);
        if (target - pipe < allowed)
            allowed = target - pipe;
    }
    const int64_t window = pipe + (allowed > 0 ? allowed : 0);
    return window > smss ? window : smss;
}

bool sn_recovery_ends(sn_recovery *recovery, int64_t una)
{
    if (recovery->is_open || una < recovery->recover)
        return false;
    enter(recovery, SN_RECOVERY_OPEN);
    recovery->may_undo = false;
    return true;
}

bool sn_recovery_undo(sn_flow *flow, sn_maybe_position echo)
{
    sn_recovery *recovery = &flow->recovery;
    const int64_t stamp = recovery->stamp;
    if (stamp == -1 || !recovery->may_undo)
        return false;
    recovery->stamp = -1;
    recovery->may_undo = false;
    if (echo == -1 || (int32_t)((uint32_t)stamp - (uint32_t)echo) <= 0)
        return false;
    enter(recovery, SN_RECOVERY_OPEN);
    sn_congestion_restore(&flow->congestion, &recovery->congestion);
    flow->hystart = recovery->hystart;
    return true;
}
