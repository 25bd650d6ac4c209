/* Sending: softnic/tcp/output.py, arm_timers.py and what they call, in their order. */
#include "tcp/flow_steps.h"

#include <math.h>
#include <string.h>

enum { PSH = 0x08, ACK = 0x10, FRAME_HEADERS = 66 };

uint32_t sn_flow_advertise(sn_flow *flow)
{
    sn_receive *rcv = &flow->receive;
    int64_t nxt = rcv->rcv_nxt, edge = rcv->rcv_adv, most = nxt + rcv->capacity - rcv->unread;
    /* Beyond it by rounding: once, not with every ACK. */
    if (sn_window_may_move(rcv) || edge > most)
        edge = most;
    if (edge <= nxt) { /* a segment taken whole exceeded the window */
        if (nxt > rcv->rcv_adv)
            rcv->rcv_adv = nxt;
        return 0;
    }
    int64_t field = -((nxt - edge) >> rcv->scale);
    if (field > 0xFFFF)
        field = 0xFFFF;
    edge = nxt + (field << rcv->scale);
    if (edge > rcv->rcv_adv)
        rcv->rcv_adv = edge;
    return (uint32_t)field;
}

void sn_flow_fill(sn_flow *flow, int64_t position, uint32_t flags, double now, sn_output *out)
{
    const sn_receive *rcv = &flow->receive;
    out->seq = sn_number(flow->send.iss, position);
    out->ack = sn_number(rcv->irs, rcv->rcv_nxt);
    out->flags = flags;
    out->window = sn_flow_advertise(flow);
    flow->connection.last_ack_sent = rcv->rcv_nxt;
    out->ts_value = sn_timestamp(flow, now);
    out->ts_echo = (uint32_t)flow->timestamps.ts_recent;
}

/* Fills in the SACK blocks that an empty segment has, as many as fit beside timestamps (RFC 2018, section 3). */
static void report_gaps(sn_flow *flow, sn_output *out)
{
    const uint32_t most = SN_MOST_SACKS - flow->connection.use_timestamps;
    int64_t blocks[2 * SN_MOST_REPORTED];
    out->sack_blocks = 0;
    if (!flow->reassembly.has_gap && !flow->reassembly.has_repeated)
        return;
    const uint32_t count = sn_reassembly_report(&flow->reassembly, blocks);
    out->sack_blocks = count < most ? count : most;
    for (uint32_t i = 0; i < 2 * out->sack_blocks; i++)
        out->sacks[i] = sn_number(flow->receive.irs, blocks[i]);
}

void sn_flow_ack(sn_flow *flow, double now, sn_output *out)
{
    static const uint8_t no_bytes[1]; /* memcpy must not be given NULL, not even for no bytes */
    const sn_send *snd = &flow->send;
    int64_t edge = snd->snd_una + snd->snd_wnd;
    flow->connection.ack_pending = false;
    sn_delayed_ack_on_pure_ack(&flow->delayed_ack);
    sn_flow_fill(flow, edge < snd->snd_nxt ? edge : snd->snd_nxt, ACK, now, out);
    out->start = out->end = 0;
    out->frames = 1;
    out->tos = out->tag = out->block_offset = 0;
    out->data = no_bytes;
    report_gaps(flow, out);
}

int64_t sn_flow_frame_budget(sn_flow *flow, int64_t unsent, int64_t frames, double link_full_at, double now)
{
    sn_connection *c = &flow->connection;
    const sn_congestion *congestion = &flow->congestion;
    int64_t pipe = flow->scoreboard.pipe, allowance = congestion->cwnd - pipe;
    int64_t budget = allowance / congestion->smss;
    if (budget <= 0) { /* floor and truncation differ below zero only, where both mean none */
        if (pipe && allowance < unsent + FRAME_HEADERS && !flow->recovery.must_send)
            return 0;
        budget = 1;
    }
    if (sn_pacer_update(&flow->pacer, congestion, &flow->retransmission_timeout, link_full_at, now)) {
        int64_t burst = sn_pacer_burst(&flow->pacer, congestion->smss, now);
        if (burst == 0) {
            c->pacing_timer = flow->pacer.free_at;
            return c->pacing_timer < c->scheduled_at ? -1 : 0;
        }
        if (burst < frames)
            frames = burst;
    }
    return budget < frames ? budget : frames;
}

int64_t sn_flow_segment_end(const sn_flow *flow, int64_t start, int64_t budget, bool force)
{
    const sn_send *snd = &flow->send;
    const sn_send_buffer *buffer = &flow->send_buffer;
    int64_t super_segment = flow->connection.super_segment, limit = snd->snd_una + snd->snd_wnd;
    sn_extent extent;
    sn_send_buffer_extent(buffer, start, snd->fin_queued, &extent);
    int64_t natural = extent.end;
    bool short_may_leave = !flow->connection.corked && (flow->connection.nodelay || snd->snd_sml <= snd->snd_una);
    bool flush = extent.closed || short_may_leave;
    int64_t end = start + super_segment < limit ? start + super_segment : limit;
    if (end < start)
        end = start;
    end = natural <= end ? natural : sn_tag_range_cut_before(&extent.range, start, end);
    if (!extent.range.words && end - start > snd->mss) {
        int64_t length = end - start;
        if (budget * snd->mss < length)
            length = budget * snd->mss;
        if (start + length < natural || !flush)
            length -= length % snd->mss; /* whole frames first; the next call decides about the short one */
        end = start + length;
    }
    int64_t length = end - start;
    bool full = length >= snd->mss || (length && force);
    if (end < natural) /* a super-segment shorter than a frame waits for no window */
        return full || (length && (2 * length >= snd->max_wnd || start + super_segment <= limit)) ? end : -1;
    if (snd->fin_queued && end == buffer->end)
        return length || end < limit ? end : -1;
    return full || (length && flush) ? end : start;
}

int64_t sn_flow_next_sent(const sn_flow *flow)
{
    int64_t lost[2];
    if (!flow->scoreboard.lost || !sn_scoreboard_first_lost(&flow->scoreboard, lost))
        return flow->send.snd_nxt;
    return sn_send_buffer_segment_start(&flow->send_buffer, lost[0]);
}

static int64_t least(int64_t a, int64_t b)
{
    return b < a ? b : a;
}

int64_t sn_flow_again_end(const sn_flow *flow, int64_t start, int64_t stop, int64_t budget)
{
    const sn_send *snd = &flow->send;
    const sn_send_buffer *buffer = &flow->send_buffer;
    const int64_t begin = sn_send_buffer_segment_start(buffer, start);
    const bool words = sn_send_buffer_tag_range(buffer, begin)->words;
    const int64_t most = least(begin + (words ? flow->connection.super_segment : budget * snd->mss), buffer->end);
    const int64_t end = sn_send_buffer_reach(buffer, begin, least(stop, most), snd->fin_queued);
    if (end > start)
        return end;
    return sn_send_buffer_reach(buffer, begin, least(snd->snd_nxt, most), snd->fin_queued); /* a coding block is sent whole */
}

static void fill_payload(const sn_send_buffer *buffer, sn_output *out)
{
    const sn_tag_range *range = sn_send_buffer_tag_range(buffer, out->start);
    out->tos = range->tos;
    out->tag = range->tag;
    out->block_offset = range->words ? (uint32_t)((out->start - range->origin) % SN_LONGEST_BLOCK) : 0;
    out->data = sn_send_buffer_data(buffer, out->start);
}

bool sn_flow_has_output(const sn_flow *flow)
{
    const sn_connection *c = &flow->connection;
    return flow->send.snd_nxt < flow->send_buffer.end + flow->send.fin_queued || c->ack_pending ||
           c->dup_acks_pending > 0 || flow->scoreboard.lost > 0 || c->syn_pending;
}

/* Fills in a segment with the bytes [start, end). */
static void fill_data(sn_flow *flow, int64_t start, int64_t end, int64_t frames, double now, sn_output *out)
{
    sn_flow_fill(flow, start, end == flow->send_buffer.end ? ACK | PSH : ACK, now, out);
    out->start = start;
    out->end = end;
    out->frames = frames;
    out->sack_blocks = 0;
    fill_payload(&flow->send_buffer, out);
}

/* Chooses of the first range marked lost what is sent again now. */
static uint32_t choose_lost(sn_flow *flow, int64_t frames, double link_full_at, double now, sn_output *out)
{
    const sn_send_buffer *buffer = &flow->send_buffer;
    int64_t lost[2];
    if (!sn_scoreboard_has_room(&flow->scoreboard, 2) || !sn_send_buffer_has_room(buffer) ||
        !sn_scoreboard_first_lost(&flow->scoreboard, lost))
        return 0;
    const int64_t budget = sn_flow_frame_budget(flow, lost[1] - lost[0], frames, link_full_at, now);
    if (budget <= 0)
        return SN_DONE | (budget < 0 ? SN_SCHEDULE : 0);
    const int64_t start = sn_send_buffer_segment_start(buffer, lost[0]);
    fill_data(flow, start, sn_flow_again_end(flow, lost[0], lost[1], budget), budget, now, out);
    return SN_DONE | SN_DATA;
}

/* Chooses what is sent now of the data that was not sent yet. */
static uint32_t choose_new(sn_flow *flow, int64_t frames, double link_full_at, double now, sn_output *out)
{
    const sn_connection *c = &flow->connection;
    const int64_t start = flow->send.snd_nxt, written = flow->send_buffer.end;
    if (start >= written)
        return SN_DONE;
    if (now >= c->path_mtu_until || !sn_scoreboard_has_room(&flow->scoreboard, 1) ||
        !sn_send_buffer_has_room(&flow->send_buffer))
        return 0;
    if (flow->scoreboard.count == 0 && now - c->last_sent_at > flow->retransmission_timeout.rto)
        sn_congestion_on_idle(flow, now - c->last_sent_at);
    const int64_t budget = sn_flow_frame_budget(flow, written - start, frames, link_full_at, now);
    if (budget <= 0)
        return SN_DONE | (budget < 0 ? SN_SCHEDULE : 0);
    const int64_t end = sn_flow_segment_end(flow, start, budget, false);
    if (end < 0 && flow->scoreboard.count == 0)
        return 0; /* the persist timer begins */
    if (end <= start)
        return SN_DONE;
    fill_data(flow, start, end, budget, now, out);
    return SN_DONE | SN_DATA;
}

uint32_t sn_flow_output(sn_flow *flow, int64_t frames, double link_full_at, double now, sn_output *out)
{
    sn_connection *c = &flow->connection;
    if (!sn_is_streaming(flow) || c->blocked || c->corked)
        return 0;
    if (c->dup_acks_pending) { /* one with SACK blocks suffices */
        c->dup_acks_pending = 0;
        sn_flow_ack(flow, now, out);
        return SN_DONE | SN_ACK | SN_AGAIN;
    }
    const uint32_t left = flow->scoreboard.lost ? choose_lost(flow, frames, link_full_at, now, out)
                                                : choose_new(flow, frames, link_full_at, now, out);
    if (left == 0 || left & SN_DATA || !c->ack_pending)
        return left;
    sn_flow_ack(flow, now, out);
    return left | SN_ACK;
}

sn_segment_fields sn_flow_fields(const sn_flow *flow, const sn_output *out)
{
    const sn_connection *c = &flow->connection;
    sn_segment_fields fields = {
        .src = (uint32_t)c->local_ip,
        .dst = (uint32_t)c->peer_ip,
        .sport = (uint16_t)c->local_port,
        .dport = (uint16_t)c->peer_port,
        .seq = out->seq,
        .ack = out->ack,
        .window = out->window,
        .flags = (uint8_t)out->flags,
        .tos = (uint8_t)out->tos,
        .ttl = (uint8_t)c->ttl,
        .has_timestamps = c->use_timestamps,
        .ts_value = out->ts_value,
        .ts_echo = out->ts_echo,
        .sack_blocks = out->sack_blocks,
    };
    memcpy(fields.sacks, out->sacks, 2 * out->sack_blocks * sizeof *fields.sacks);
    return fields;
}

uint32_t sn_flow_header(const sn_flow *flow, const sn_output *out, const uint8_t *destination, const uint8_t *source,
                        uint16_t identification, uint8_t *header)
{
    const sn_segment_fields fields = sn_flow_fields(flow, out);
    return sn_segment_header(&fields, destination, source, identification, header);
}

int sn_flow_carried(sn_flow *flow, int64_t end, int64_t frames, int64_t wire_bytes, double now)
{
    sn_connection *c = &flow->connection;
    c->blocked = false;
    c->frames_sent += frames;
    c->wire_bytes_sent += wire_bytes;
    c->ack_pending = false;
    sn_delayed_ack_on_piggybacked(&flow->delayed_ack, now);
    return sn_send_buffer_cut_at(&flow->send_buffer, end);
}

int sn_flow_sent_new(sn_flow *flow, int64_t end, bool is_short, int64_t wire_bytes, double now)
{
    sn_connection *c = &flow->connection;
    int64_t start = flow->send.snd_nxt;
    if (sn_scoreboard_sent(&flow->scoreboard, start, end, wire_bytes, now))
        return -1;
    flow->send.snd_nxt = end;
    if (is_short)
        flow->send.snd_sml = end;
    if (end >= flow->send_buffer.end && flow->scoreboard.pipe < flow->congestion.cwnd)
        sn_scoreboard_mark_app_limited(&flow->scoreboard);
    sn_recovery_sent(&flow->recovery, wire_bytes);
    sn_pacer_sent(&flow->pacer, wire_bytes, now);
    c->last_sent_at = now;
    bool schedule = false;
    if (c->persisting || c->rto_at == INFINITY) {
        c->persisting = false;
        c->unacked_since = now;
        schedule = sn_flow_arm_rto(flow, now);
    }
    return sn_flow_arm_pto(flow, now) || schedule;
}

int sn_flow_sent_again(sn_flow *flow, int64_t start, int64_t end, int64_t wire_bytes, double now)
{
    sn_connection *c = &flow->connection;
    if (end > start && sn_scoreboard_sent_again(&flow->scoreboard, start, end, wire_bytes, now))
        return -1;
    c->retransmits++;
    sn_recovery_sent_again(&flow->recovery, c->use_timestamps ? (int64_t)sn_timestamp(flow, now) : -1);
    sn_recovery_sent(&flow->recovery, wire_bytes);
    sn_pacer_sent(&flow->pacer, wire_bytes, now);
    return 0;
}

uint32_t sn_flow_sent(sn_flow *flow, const sn_output *out, int64_t consumed, int64_t frames, int64_t wire_bytes,
                      double now)
{
    /* There is room for what is recorded, see sn_flow_output. */
    int64_t taken = out->start + consumed, lost[2];
    sn_flow_carried(flow, taken, frames, wire_bytes, now);
    if (out->start < flow->send.snd_nxt) {
        if (sn_scoreboard_first_lost(&flow->scoreboard, lost))
            sn_flow_sent_again(flow, lost[0], taken, wire_bytes, now);
        return SN_DONE;
    }
    bool is_short = taken == flow->send_buffer.end && consumed % flow->send.mss > 0;
    return SN_DONE | (sn_flow_sent_new(flow, taken, is_short, wire_bytes, now) > 0 ? SN_SCHEDULE : 0);
}
