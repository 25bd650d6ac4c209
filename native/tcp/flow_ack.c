/* Processing of acknowledgements by the sender: softnic/tcp/ack.py describes it. */
#include "tcp/flow_steps.h"

#include <math.h>

int64_t sn_send_position(const sn_send *snd, uint32_t acknowledgement)
{
    return sn_position(snd->iss, acknowledgement, snd->snd_una);
}

bool sn_flow_begin_ack(sn_flow *flow, sn_ack *ack, int64_t una, double now)
{
    sn_scoreboard *board = &flow->scoreboard;
    sn_ack_begin(ack, now, board->pipe + board->sacked + board->lost);
    if (una <= flow->send.snd_una)
        return false;
    flow->send.snd_una = una;
    sn_send_buffer_release(&flow->send_buffer, una);
    sn_scoreboard_acknowledge(board, una, ack);
    if (flow->retransmission_timeout.backoff)
        sn_retransmission_timeout_answered(&flow->retransmission_timeout);
    return true;
}

void sn_flow_measure(sn_flow *flow, sn_ack *ack, bool advanced, uint32_t echo)
{
    bool once = ack->has_newest && ack->never_retransmitted;
    if (once)
        ack->rtt = ack->now - ack->newest.sent_at;
    else if (advanced && flow->connection.use_timestamps && echo)
        ack->rtt = (double)(sn_timestamp(flow, ack->now) - echo) / 1000;
    else
        advanced = false;
    if (once || advanced)
        sn_retransmission_timeout_sample(&flow->retransmission_timeout, ack->rtt);
    sn_rack_update(flow, ack, ack->rtt != 0.0 ? ack->rtt : NAN);
}

bool sn_flow_is_repairing(const sn_flow *flow)
{
    return !flow->recovery.is_open || flow->rack.probe_end != -1 || flow->scoreboard.sacked || flow->scoreboard.lost;
}

void sn_flow_arrived(sn_flow *flow, sn_ack *ack)
{
    sn_scoreboard *board = &flow->scoreboard;
    sn_scoreboard_arrived(board, ack);
    ack->una = flow->send.snd_una;
    ack->nxt = flow->send.snd_nxt;
    ack->srtt = flow->retransmission_timeout.srtt;
    ack->pipe = board->pipe;
    ack->delivered = board->delivered;
    ack->lost_total = board->lost_total;
}

/* A SACK block, in positions. */
typedef struct {
    int64_t start;
    int64_t end;
} block;

static void sort(block *blocks, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = i; j > 0 && (blocks[j].start < blocks[j - 1].start ||
                                       (blocks[j].start == blocks[j - 1].start && blocks[j].end < blocks[j - 1].end));
             j--) {
            const block other = blocks[j];
            blocks[j] = blocks[j - 1];
            blocks[j - 1] = other;
        }
}

/* Marks a block as arrived; without memory for it, it is as if it had not been reported. */
static void take_block(sn_flow *flow, block b, sn_ack *ack)
{
    const sn_send_buffer *buffer = &flow->send_buffer;
    /* Coding blocks are retransmitted whole, so only whole ones count. */
    const int64_t first = b.start >= buffer->end ? b.start : sn_send_buffer_segment_start(buffer, b.start);
    if (first < b.start)
        b.start = sn_send_buffer_segment_start(buffer, b.start + SN_BLOCK - 1);
    if (b.end < buffer->end && b.end < flow->send.snd_nxt)
        b.end = sn_send_buffer_segment_start(buffer, b.end);
    if (b.start < b.end)
        sn_scoreboard_sack(&flow->scoreboard, b.start, b.end, ack);
}

bool sn_flow_take_blocks(sn_flow *flow, const uint32_t *numbers, uint32_t count, sn_ack *ack)
{
    const int64_t una = flow->send.snd_una, nxt = flow->send.snd_nxt;
    if (count > SN_MOST_SACKS)
        count = SN_MOST_SACKS;
    block blocks[SN_MOST_SACKS] = {{0}};
    for (uint32_t i = 0; i < count; i++) {
        blocks[i].start = sn_send_position(&flow->send, numbers[2 * i]);
        blocks[i].end = blocks[i].start + (int64_t)(numbers[2 * i + 1] - numbers[2 * i]);
    }
    const block first = blocks[0];
    const bool dsack = first.end <= una ? first.start < una
                                        : count > 1 && blocks[1].start <= first.start && first.end <= blocks[1].end;
    sort(blocks, count); /* in stream order, or they would look like reordering */
    for (uint32_t i = 0; i < count; i++)
        if (una < blocks[i].start && blocks[i].start < blocks[i].end && blocks[i].end <= nxt)
            take_block(flow, blocks[i], ack);
    return dsack;
}

static bool set_reo_timer(sn_connection *c, double at)
{
    c->reo_timer = at;
    return at < c->scheduled_at;
}

bool sn_flow_look_for_losses(sn_flow *flow, double now)
{
    const double window = sn_rack_window(flow, &flow->scoreboard, !flow->recovery.is_open, flow->congestion.smss,
                                         flow->retransmission_timeout.srtt);
    return set_reo_timer(&flow->connection, sn_rack_detect(&flow->rack, &flow->scoreboard, window, now));
}

void sn_flow_begin_recovery(sn_flow *flow)
{
    sn_recovery_begin(flow);
    flow->rack.probe_end = -1; /* the answer to a probe would mean nothing */
    flow->connection.pto = INFINITY;
    if (sn_congestion_reduces(&flow->congestion))
        flow->congestion.cwnd = sn_recovery_window(flow, 0, false);
}

/* Ends recovery if this acknowledgement shows that it was needless, or that all is repaired. */
static uint32_t end_recovery(sn_flow *flow, sn_maybe_position echo)
{
    const bool was_fast = flow->recovery.state == SN_RECOVERY_FAST;
    uint32_t left = 0;
    if (sn_recovery_undo(flow, echo)) {
        sn_scoreboard_undo_lost_marks(&flow->scoreboard);
        left = SN_UNDONE;
    } else if (sn_recovery_ends(&flow->recovery, flow->send.snd_una)) {
        if (was_fast && sn_congestion_reduces(&flow->congestion))
            flow->congestion.cwnd = flow->congestion.ssthresh;
        sn_rack_recovered(&flow->rack);
    }
    return left;
}

/* Marks losses, and begins or ends recovery. */
static uint32_t repair(sn_flow *flow, const sn_ack *ack, bool advanced, bool dsack, sn_maybe_position echo)
{
    sn_congestion *congestion = &flow->congestion;
    const sn_scoreboard *board = &flow->scoreboard;
    const sn_send *snd = &flow->send;
    uint32_t left = 0;
    if (dsack)
        sn_rack_duplicate(&flow->rack, snd->snd_una, snd->snd_nxt);
    if (sn_rack_probe_answered(&flow->rack, snd->snd_una) && flow->recovery.is_open) {
        sn_congestion_on_loss(congestion, ack->flight_size); /* it repaired a loss that was not detected */
        if (congestion->ssthresh < congestion->cwnd)
            congestion->cwnd = congestion->ssthresh;
    }
    if (advanced && !flow->recovery.is_open)
        left |= end_recovery(flow, echo);
    if (!flow->connection.use_sack || (!board->sacked && flow->recovery.is_open))
        flow->connection.reo_timer = INFINITY;
    else if (sn_flow_look_for_losses(flow, ack->now))
        left |= SN_SCHEDULE;
    if (board->lost && flow->recovery.is_open) {
        sn_flow_begin_recovery(flow);
        left |= SN_RECOVERS;
    }
    return left;
}

uint32_t sn_flow_acknowledged(sn_flow *flow, sn_ack *ack, bool advanced, bool dsack, sn_maybe_position echo)
{
    sn_congestion *congestion = &flow->congestion;
    uint32_t left = SN_DONE;
    sn_flow_measure(flow, ack, advanced, echo == -1 ? 0 : (uint32_t)echo);
    if (dsack || sn_flow_is_repairing(flow))
        left |= repair(flow, ack, advanced, dsack, flow->connection.use_timestamps ? echo : -1);
    else
        flow->connection.reo_timer = INFINITY;
    if (ack->wire_bytes) {
        sn_flow_arrived(flow, ack);
        if (flow->recovery.state == SN_RECOVERY_FAST && sn_congestion_reduces(congestion))
            congestion->cwnd = sn_recovery_window(flow, ack->wire_bytes, advanced);
        else if (advanced || !sn_congestion_reduces(congestion)) /* SACKed data alone does not grow a window */
            sn_congestion_on_ack(flow, ack);
    }
    if ((advanced || ack->wire_bytes) && sn_flow_rearm_after_ack(flow, ack->now, advanced))
        left |= SN_SCHEDULE;
    return left;
}
