/* Sending on the loss-free path: softnic/tcp/output.py, arm_timers.py and what they call, in their order. */
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

/* Whether all that may have to be sent is new data and ACKs. */
static bool sends_new_data_only(const sn_flow *flow)
{
    return sn_is_loss_free(flow) && !flow->connection.blocked && !flow->connection.corked && !flow->reassembly.has_repeated &&
           !flow->recovery.must_send;
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

uint32_t sn_flow_output(sn_flow *flow, int64_t frames, double link_full_at, double now, sn_output *out)
{
    sn_connection *c = &flow->connection;
    sn_send *snd = &flow->send;
    if (!sends_new_data_only(flow))
        return 0;
    int64_t start = snd->snd_nxt, written = flow->send_buffer.end;
    uint32_t left = SN_DONE;
    if (start < written) {
        if (now >= c->path_mtu_until ||
            !sn_scoreboard_has_room(&flow->scoreboard) || !sn_send_buffer_has_room(&flow->send_buffer))
            return 0;
        if (flow->scoreboard.count == 0 && now - c->last_sent_at > flow->retransmission_timeout.rto)
            sn_congestion_on_idle(flow);
        int64_t budget = sn_flow_frame_budget(flow, written - start, frames, link_full_at, now), end = start;
        if (budget < 0) {
            left |= SN_SCHEDULE;
            budget = 0;
        }
        if (budget && (end = sn_flow_segment_end(flow, start, budget, false)) < 0) {
            if (flow->scoreboard.count == 0)
                return 0; /* the persist timer begins */
            end = start;
        }
        if (end > start) {
            sn_flow_fill(flow, start, end == written ? ACK | PSH : ACK, now, out);
            out->start = start;
            out->end = end;
            out->frames = budget;
            fill_payload(&flow->send_buffer, out);
            return left | SN_DATA;
        }
    }
    if (c->ack_pending) {
        sn_flow_ack(flow, now, out);
        left |= SN_ACK;
    }
    return left;
}

sn_segment_fields sn_flow_fields(const sn_flow *flow, const sn_output *out)
{
    const sn_connection *c = &flow->connection;
    return (sn_segment_fields){
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
    };
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

uint32_t sn_flow_sent(sn_flow *flow, const sn_output *out, int64_t consumed, int64_t frames, int64_t wire_bytes,
                      double now)
{
    int64_t taken = out->start + consumed;
    bool is_short = taken == flow->send_buffer.end && consumed % flow->send.mss > 0;
    sn_flow_carried(flow, taken, frames, wire_bytes, now); /* there is room, see sn_flow_output */
    return SN_DONE | (sn_flow_sent_new(flow, taken, is_short, wire_bytes, now) > 0 ? SN_SCHEDULE : 0);
}
