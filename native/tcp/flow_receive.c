/* SEGMENT ARRIVES: softnic/tcp/input.py, ack.py and what they call, in their order. */
#include "tcp/flow_steps.h"

#include <math.h>

enum { PSH = 0x08, ACK = 0x10 };

/* Whether no part of the flow's state needs Python. */
static bool takes_segments(const sn_flow *flow)
{
    const sn_connection *c = &flow->connection;
    return sn_is_streaming(flow) && !c->orphaned && !c->has_soft_error && flow->receive.fin == -1;
}

int64_t sn_receive_tuning_advance(sn_receive_tuning *t, const sn_receive *rcv, int64_t waiting, double now, double srtt,
                                  sn_maybe_number echoed)
{
    const double tick = 0.001, sample = larger(tick, isnan(echoed) ? srtt : echoed + tick);
    if (t->rtt_s == 0.0)
        t->rtt_s = srtt != 0.0 ? larger(tick, srtt) : sample;
    else if (sample < t->rtt_s)
        t->rtt_s = sample;
    else
        t->rtt_s += 1.0 / 8 * (sample - t->rtt_s);
    int64_t taken = rcv->rcv_nxt - rcv->unread + waiting - t->position, growth = 0;
    double elapsed = now - t->started;
    if (elapsed > 0 && t->started != 0.0) {
        const int64_t more = taken > t->consumed ? taken - t->consumed : 0;
        int64_t wanted = (int64_t)((double)(4 * (taken + more)) * smaller(1.0, t->rtt_s / elapsed));
        if (t->most < wanted)
            wanted = t->most;
        if (rcv->largest < wanted)
            wanted = rcv->largest;
        growth = wanted - rcv->capacity;
    }
    t->position += taken;
    t->consumed = taken;
    t->started = now;
    t->round_ends = now + t->rtt_s;
    return growth;
}

/* Ends a round of receive buffer tuning with this segment. Returns by how much the buffer is to grow, which only Python
   does, because it takes the bytes from the budget of all connections. */
static int64_t tune(const sn_flow *flow, sn_receive_tuning *tuning, const sn_segment *s, double now)
{
    bool echoes = s->has_timestamps && s->ts_echo;
    double echoed = echoes ? (double)(sn_timestamp(flow, now) - s->ts_echo) / 1000 : NAN;
    return sn_receive_tuning_advance(tuning, &flow->receive, flow->reassembly.size, now,
                                     flow->retransmission_timeout.srtt, echoed);
}

/* `advances`: the segment acknowledges new data, which may change the smoothed round trip before the tuning. */
static bool tuning_needs_python(const sn_flow *flow, const sn_segment *s, bool advances, double now)
{
    sn_receive_tuning tuning = flow->receive_tuning;
    bool by_echo = s->has_timestamps && s->ts_echo && tuning.rtt_s != 0.0;
    return tune(flow, &tuning, s, now) > 0 || (advances && !by_echo);
}

bool sn_flow_receives(const sn_flow *flow, const sn_segment *s, double now)
{
    const sn_connection *c = &flow->connection;
    if ((s->flags & ~PSH) != ACK || s->has_timestamps != c->use_timestamps || !takes_segments(flow))
        return false;
    if (s->has_timestamps && (int32_t)(s->ts_value - (uint32_t)flow->timestamps.ts_recent) < 0)
        return false;
    const sn_receive *rcv = &flow->receive;
    const int64_t position = sn_receive_position(rcv, s->seq);
    if (!sn_receive_accepts(rcv, position, s->length))
        return false;
    if (s->length && (position < rcv->rcv_nxt ||
                      (position > rcv->rcv_nxt && !sn_reassembly_has_room(&flow->reassembly, s->length))))
        return false;
    const sn_send *snd = &flow->send;
    int64_t ack = sn_position(snd->iss, s->ack, snd->snd_una);
    if (ack > snd->snd_nxt || (ack < snd->snd_una && ack < snd->snd_una - snd->max_wnd))
        return false;
    return !s->length || now < flow->receive_tuning.round_ends ||
           !tuning_needs_python(flow, s, ack > snd->snd_una, now);
}

bool sn_send_update_window(sn_send *snd, int64_t position, int64_t ack, uint32_t field, bool scaled)
{
    if (ack <= snd->snd_wl2 && position < snd->snd_wl1)
        return false;
    int64_t window = scaled ? (int64_t)field << snd->scale : field;
    bool changed = window != snd->snd_wnd;
    snd->snd_wnd = window;
    snd->snd_wl1 = position;
    snd->snd_wl2 = ack;
    if (window > snd->max_wnd)
        snd->max_wnd = window;
    return changed;
}

int64_t sn_receive_position(const sn_receive *rcv, uint32_t sequence)
{
    return sn_position(rcv->irs, sequence, rcv->rcv_nxt);
}

bool sn_receive_accepts(const sn_receive *rcv, int64_t position, int64_t length)
{
    int64_t nxt = rcv->rcv_nxt, right = rcv->rcv_adv;
    if (position == nxt)
        return right > nxt || !length;
    if (position > nxt)
        return position < right || (position == right && !length);
    return position + length > nxt && right > nxt;
}

bool sn_flow_heard(sn_flow *flow, int64_t position, int64_t stamp, double now)
{
    sn_connection *c = &flow->connection;
    c->last_heard = now;
    c->keepalive_probes = 0;
    if (stamp >= 0 && position <= c->last_ack_sent && c->use_timestamps) {
        flow->timestamps.ts_recent = stamp;
        flow->timestamps.recent_at = now;
    }
    return c->has_soft_error;
}

/* Processes a segment that acknowledges data up to `una`, or repeats that, or reports SACK blocks. */
static uint32_t process_ack(sn_flow *flow, const sn_segment *s, int64_t una, double now)
{
    sn_ack ack;
    const bool advanced = sn_flow_begin_ack(flow, &ack, una, now);
    const bool dsack = s->sack_blocks && sn_flow_take_blocks(flow, s->sacks, s->sack_blocks, &ack);
    return sn_flow_acknowledged(flow, &ack, advanced, dsack, s->has_timestamps ? (int64_t)s->ts_echo : -1);
}

/* Takes acknowledgement and window of a segment at `position`. */
static uint32_t take_ack(sn_flow *flow, const sn_segment *s, int64_t position, double now)
{
    sn_send *snd = &flow->send;
    const int64_t una = snd->snd_una, ack = sn_send_position(snd, s->ack);
    uint32_t left = SN_DONE;
    if (ack > una) {
        left |= process_ack(flow, s, ack, now);
        sn_send_update_window(snd, position, ack, s->window, true);
        if (flow->connection.wants_space)
            left |= SN_WRITABLE;
    } else {
        const bool changed = ack == una && sn_send_update_window(snd, position, ack, s->window, true);
        const bool repeats = ack == una && !changed && !s->length;
        if ((repeats || s->sack_blocks) && flow->scoreboard.count)
            left |= process_ack(flow, s, una, now);
    }
    return left;
}

bool sn_flow_is_ahead(const sn_flow *flow, const sn_segment *s)
{
    return s->length && sn_receive_position(&flow->receive, s->seq) > flow->receive.rcv_nxt;
}

int64_t sn_flow_keep(sn_flow *flow, uint32_t seq, sn_chunk *chunk)
{
    const sn_receive *rcv = &flow->receive;
    /* Growth of the window is charged already, whether it is filled in order or not. */
    const int64_t grown = rcv->capacity - rcv->initial, position = sn_receive_position(rcv, seq);
    return sn_reassembly_keep(&flow->reassembly, position, chunk, grown > 0 ? grown : 0);
}

void sn_flow_fill_gap(sn_flow *flow)
{
    const int64_t taken = sn_reassembly_take(&flow->reassembly, flow->receive.rcv_nxt);
    flow->receive.rcv_nxt += taken;
    flow->receive.unread += taken;
}

/* Sets when out-of-order data is dropped. Returns what is left to do. */
static uint32_t arm_gap(sn_connection *c, double at)
{
    c->gap_at = at;
    return at < c->scheduled_at ? SN_SCHEDULE : 0;
}

/* Ends a round of receive buffer tuning with this segment, which does not let the buffer grow. Returns what is left to do. */
static uint32_t end_round(sn_flow *flow, const sn_segment *s, double now)
{
    tune(flow, &flow->receive_tuning, s, now);
    return sn_flow_schedule_trim(flow, now) ? SN_SCHEDULE : 0;
}

/* Takes data behind a gap: one duplicate ACK is due for every frame, because a sender without SACK counts them. */
static uint32_t take_ahead(sn_flow *flow, const sn_segment *s, double now)
{
    sn_connection *c = &flow->connection;
    uint32_t left = SN_KEEP;
    if (now >= flow->receive_tuning.round_ends)
        left |= end_round(flow, s, now);
    c->dup_acks_pending += s->frames;
    if (c->dup_acks_pending > SN_MOST_DUPLICATE_ACKS)
        c->dup_acks_pending = SN_MOST_DUPLICATE_ACKS;
    return left | (c->gap_at == INFINITY ? arm_gap(c, now + c->gap_s) : 0);
}

/* Takes data that is next in order, and what waited for it. */
static uint32_t take_next(sn_flow *flow, const sn_segment *s, double now)
{
    sn_connection *c = &flow->connection;
    const bool whole = !flow->reassembly.has_gap;
    uint32_t left = SN_DELIVER;
    flow->receive.rcv_nxt += s->length;
    flow->receive.unread += s->length;
    if (!whole)
        sn_flow_fill_gap(flow);
    left |= arm_gap(c, flow->reassembly.has_gap ? now + c->gap_s : INFINITY);
    c->dup_acks_pending = flow->reassembly.has_gap; /* data that acknowledges as much would not report what is behind the gap */
    if (now >= flow->receive_tuning.round_ends)
        left |= end_round(flow, s, now);
    if (!sn_delayed_ack_should_delay(&flow->delayed_ack, s->frames, s->length, now) || !whole || c->ack_pending)
        c->ack_pending = true;
    else if (flow->delayed_ack.at < c->scheduled_at)
        left |= SN_SCHEDULE;
    return left;
}

uint32_t sn_flow_receive(sn_flow *flow, const sn_segment *s, double now)
{
    sn_connection *c = &flow->connection;
    const int64_t position = sn_receive_position(&flow->receive, s->seq);
    c->frames_received += s->frames;
    sn_flow_heard(flow, position, s->has_timestamps ? (int64_t)s->ts_value : -1, now);
    uint32_t left = take_ack(flow, s, position, now);
    if (s->length)
        left |= position > flow->receive.rcv_nxt ? take_ahead(flow, s, now) : take_next(flow, s, now);
    if (!c->queued && sn_flow_has_output(flow))
        left |= SN_WAKE;
    return left;
}

bool sn_receive_wants_update(const sn_receive *receive)
{
    return sn_window_may_move(receive) && !receive->eof;
}

bool sn_flow_consume(sn_flow *flow, int64_t count)
{
    flow->receive.unread -= count;
    flow->connection.readable_notified = false;
    return sn_receive_wants_update(&flow->receive);
}

sn_receive_buffer *sn_flow_receive_buffer(sn_flow *flow)
{
    return &flow->receive_buffer;
}

sn_reassembly *sn_flow_reassembly(sn_flow *flow)
{
    return &flow->reassembly;
}
