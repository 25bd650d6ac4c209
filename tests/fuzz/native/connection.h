/* A connection for fuzz targets, and what must hold of one. */
#ifndef SOFTNIC_FUZZ_CONNECTION_H
#define SOFTNIC_FUZZ_CONNECTION_H
#include <math.h>

#include "tcp/flow_steps.h"
#include "fuzz.h"

enum {
    CAPACITY = 1 << 16, /* of the send buffer, whose memory is twice as long, and of the receive window */
    FRAME = 1514        /* wire bytes of a full frame */
};

/* For the out-of-order data of each of the connections that were opened last. */
static sn_budget budgets[16];
static uint32_t opened;

static const int64_t ISS = 0x7ffffff0, IRS = 0xffffff00;

/* A connection as its handshake leaves it (softnic/tcp/flow.py and its parts). */
static inline void open_connection(sn_flow *flow, uint32_t options, uint8_t *memory, double now)
{
    sn_connection *c = &flow->connection;
    memset(flow, 0, sizeof *flow);
    c->established = c->use_sack = c->fast_path = true;
    c->use_timestamps = options & 1;
    c->super_segment = 1 << 16;
    c->trim_after_s = 1;
    c->gap_s = 8;
    c->user_timeout_s = 30;
    c->rto_at = c->pto = c->reo_timer = c->pacing_timer = c->close_at = c->gap_at = INFINITY;
    c->keepalive_at = c->trim_at = c->path_mtu_until = c->scheduled_at = INFINITY;
    c->last_heard = c->last_sent_at = c->unacked_since = now;
    c->last_challenge = -INFINITY;
    flow->receive = (sn_receive){.irs = IRS, .rcv_nxt = 1, .rcv_adv = 1, .capacity = CAPACITY, .initial = CAPACITY, .fin = -1};
    flow->receive.scale = options >> 1 & 7;
    flow->receive.largest = (int64_t)0xffff << flow->receive.scale;
    flow->reassembly = (sn_reassembly){.most = 16, .budget = &budgets[opened++ % (sizeof budgets / sizeof *budgets)]};
    *flow->reassembly.budget = (sn_budget){.free = 4 * CAPACITY};
    flow->timestamps.recent_at = now;
    flow->timestamps.ts_recent = 0xfffffff0;
    flow->delayed_ack = (sn_delayed_ack){.delay_s = 0.001, .at = INFINITY, .arrived_at = -INFINITY, .needed = 1};
    flow->receive_tuning = (sn_receive_tuning){.most = 1 << 22, .position = 1};
    flow->send = (sn_send){.iss = ISS, .snd_una = 1, .snd_nxt = 1, .mss = 1448, .peer_mss = 1448};
    flow->send.scale = flow->receive.scale;
    flow->send.snd_wnd = flow->send.max_wnd = CAPACITY;
    flow->retransmission_timeout =
        (sn_retransmission_timeout){.initial_s = 1, .min_s = 0.2, .max_s = 60, .rto = 1};
    flow->rack = (sn_rack){.sent_at = -INFINITY, .peer_ack_delay_s = 0.001, .probe_end = -1, .dsack_round = -1, .multiplier = 1};
    flow->minimum_rtt = (sn_minimum_rtt){.before = INFINITY, .now = INFINITY, .since = -INFINITY};
    flow->recovery = (sn_recovery){.is_open = true, .stamp = -1};
    flow->congestion = (sn_congestion){.smss = FRAME, .cwnd = 10 * FRAME, .ssthresh = INT64_C(1) << 40};
    sn_congestion_begin_bbr(&flow->congestion);
    flow->congestion.algorithm = (options >> 4) % 3 ? (options >> 4) % 3 : SN_BBR;
    flow->congestion.began_at = NAN;
    flow->hystart = (sn_hystart){.last = INFINITY, .current = INFINITY, .baseline = INFINITY};
    flow->pacer.rate = NAN;
    flow->send_buffer = (sn_send_buffer){.capacity = CAPACITY, .origin = 1, .start = 1, .end = 1, .floats = true};
    flow->send_buffer.memory_address = (int64_t)(uintptr_t)memory;
    flow->send_buffer.memory_size = 2 * CAPACITY;
    flow->send_buffer.zerocopy_end = 1;
    CHECK(sn_send_buffer_tag(&flow->send_buffer, 1, 0, 0, false, SN_BLOCK, false) == 0);
    sn_flow_advertise(flow);
}

static inline void check_scoreboard(const sn_flow *flow, double now)
{
    const sn_scoreboard *board = &flow->scoreboard;
    int64_t sums[3] = {0}, at = flow->send.snd_una;
    uint8_t before = SN_OUT;
    for (int64_t index = 0; index < board->count; index++) {
        const sn_range *range = board->ranges + board->first + index;
        CHECK(range->start == at && range->end > at && range->wire_bytes >= 0 && range->state <= SN_LOST);
        CHECK(range->sent_at <= now && !(range->state == SN_SACKED && before == SN_SACKED));
        sums[range->state] += range->wire_bytes;
        at = range->end;
        before = range->state;
    }
    CHECK(at == flow->send.snd_nxt && board->highest <= at);
    CHECK(sums[SN_OUT] == board->pipe && sums[SN_SACKED] == board->sacked && sums[SN_LOST] == board->lost);
}

static inline void check_send_buffer(const sn_flow *flow)
{
    const sn_send_buffer *b = &flow->send_buffer;
    const sn_tag_range *tags = b->tags + b->tags_first;
    int64_t at = b->runs_count ? b->runs[b->runs_first].start : b->zerocopy_end, outstanding = 0;
    CHECK(b->start <= flow->send.snd_una && b->tags_count > 0 && tags->start <= b->start);
    for (int64_t index = 0; index < b->tags_count; index++)
        CHECK(tags[index].origin <= tags[index].start && (!index || tags[index].start > tags[index - 1].start));
    for (int64_t index = 0; index < b->runs_count; index++) {
        const sn_send_run *run = b->runs + b->runs_first + index;
        CHECK(run->start == at && run->end > at);
        outstanding += run->copy ? 0 : run->end - run->start;
        at = run->end;
    }
    CHECK(at == b->zerocopy_end && outstanding == b->outstanding);
}

static inline void check_reassembly(const sn_flow *flow)
{
    const sn_reassembly *r = &flow->reassembly;
    int64_t end = flow->receive.rcv_nxt, size = 0, bytes = 0;
    for (int64_t index = 0; index < r->count; index++) {
        const sn_waiting *waiting = sn_reassembly_at(r, index);
        CHECK(waiting->start >= end && (index || waiting->start > end) && waiting->segments > 0);
        CHECK(waiting->chunk->start < waiting->chunk->end && waiting->chunk->end <= waiting->chunk->size);
        end = waiting->start + waiting->chunk->end - waiting->chunk->start;
        size += waiting->chunk->size;
        bytes += waiting->chunk->end - waiting->chunk->start;
    }
    CHECK(bytes == r->size);
    CHECK(r->has_gap == (r->count > 0) && r->count <= r->most && size <= r->cost && r->ready.first == NULL);
    CHECK(r->charge == (r->cost > r->paid ? r->cost - r->paid : 0) && r->budget->held == r->charge && r->budget->free >= 0);
}

/* What holds at all times, and between a flow and what it was `before`. */
static inline void check_connection(const sn_flow *flow, const sn_flow *before, double now)
{
    const sn_connection *c = &flow->connection;
    const sn_send *snd = &flow->send;
    const sn_receive *rcv = &flow->receive;
    const sn_retransmission_timeout *rtt = &flow->retransmission_timeout;
    CHECK(before->send.snd_una <= snd->snd_una && snd->snd_una <= snd->snd_nxt && before->send.snd_nxt <= snd->snd_nxt);
    CHECK(snd->snd_nxt <= flow->send_buffer.end && snd->snd_sml <= snd->snd_nxt);
    CHECK(0 <= snd->snd_wnd && snd->snd_wnd <= snd->max_wnd);
    CHECK(before->receive.rcv_nxt <= rcv->rcv_nxt && before->receive.rcv_adv <= rcv->rcv_adv && rcv->unread >= 0);
    CHECK(c->last_ack_sent <= rcv->rcv_nxt && before->connection.last_ack_sent <= c->last_ack_sent);
    CHECK(flow->congestion.cwnd >= flow->congestion.smss && flow->congestion.cwnd < INT64_C(1) << 40);
    CHECK(rtt->srtt >= 0 && rtt->rttvar >= 0 && rtt->min_s <= rtt->rto && rtt->rto <= rtt->max_s);
    CHECK(c->pto == INFINITY || c->pto < c->rto_at);
    CHECK((flow->scoreboard.count == 0) == (c->rto_at == INFINITY));
    CHECK(isnan(flow->pacer.rate) || flow->pacer.rate > 0);
    CHECK(isfinite(flow->pacer.free_at) && isfinite(flow->receive_tuning.round_ends));
    CHECK(flow->delayed_ack.frames >= 0 && flow->delayed_ack.needed >= 1 && !isnan(flow->delayed_ack.at));
    CHECK(before->scoreboard.delivered <= flow->scoreboard.delivered);
    check_scoreboard(flow, now);
    check_send_buffer(flow);
    check_reassembly(flow);
}

#endif
