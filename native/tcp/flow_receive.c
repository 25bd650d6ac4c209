/* SEGMENT ARRIVES on the loss-free path: softnic/tcp/input.py, ack.py and what they call, in their order. */
#include "tcp/flow_steps.h"

#include <math.h>

enum { PSH = 0x08, ACK = 0x10 };

/* Whether no part of the flow's state needs Python. */
static bool takes_segments(const sn_flow *flow)
{
    const sn_connection *c = &flow->connection;
    return sn_is_loss_free(flow) && !c->orphaned && !c->has_soft_error && flow->receive.fin == -1 &&
           flow->retransmission_timeout.backoff == 0;
}

int64_t sn_receive_tuning_advance(sn_receive_tuning *t, const sn_receive *rcv, double now, double srtt,
                                  sn_maybe_number echoed)
{
    const double tick = 0.001, sample = larger(tick, isnan(echoed) ? srtt : echoed + tick);
    if (t->rtt_s == 0.0)
        t->rtt_s = srtt != 0.0 ? larger(tick, srtt) : sample;
    else if (sample < t->rtt_s)
        t->rtt_s = sample;
    else
        t->rtt_s += 1.0 / 8 * (sample - t->rtt_s);
    int64_t taken = rcv->rcv_nxt - rcv->unread - t->position, growth = 0;
    double elapsed = now - t->started;
    if (elapsed > 0 && t->started != 0.0) {
        int64_t wanted = (int64_t)((double)(4 * taken) * smaller(1.0, t->rtt_s / elapsed));
        if (t->most < wanted)
            wanted = t->most;
        if (rcv->largest < wanted)
            wanted = rcv->largest;
        growth = wanted - rcv->capacity;
    }
    t->position += taken;
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
    return sn_receive_tuning_advance(tuning, &flow->receive, now, flow->retransmission_timeout.srtt, echoed);
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
    if ((s->flags & ~PSH) != ACK || s->has_sacks || s->has_timestamps != c->use_timestamps || !takes_segments(flow))
        return false;
    if (s->has_timestamps && (int32_t)(s->ts_value - (uint32_t)flow->timestamps.ts_recent) < 0)
        return false;
    const sn_receive *rcv = &flow->receive;
    if (sn_number(rcv->irs, rcv->rcv_nxt) != s->seq)
        return false;
    if (s->length && rcv->rcv_adv <= rcv->rcv_nxt)
        return false;
    const sn_send *snd = &flow->send;
    int64_t ack = sn_position(snd->iss, s->ack, snd->snd_una);
    if (ack < snd->snd_una || ack > snd->snd_nxt)
        return false;
    if (s->length && now >= flow->receive_tuning.round_ends &&
        tuning_needs_python(flow, s, ack > snd->snd_una, now))
        return false;
    if (ack > snd->snd_una)
        return sn_scoreboard_sent_once(&flow->scoreboard, ack);
    bool older = ack <= snd->snd_wl2 && rcv->rcv_nxt < snd->snd_wl1;
    bool changes = !older && (int64_t)s->window << snd->scale != snd->snd_wnd;
    return s->length || changes || flow->scoreboard.count == 0; /* else it is a duplicate */
}

int64_t sn_send_position(const sn_send *snd, uint32_t acknowledgement)
{
    return sn_position(snd->iss, acknowledgement, snd->snd_una);
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

/* Has the memory of empty buffers returned later on. Returns whether the flow is to be scheduled. */
static bool schedule_trim(sn_connection *c, double now)
{
    if (c->trim_at != INFINITY)
        return false;
    c->trim_at = now + c->trim_after_s;
    return c->trim_at < c->scheduled_at;
}

bool sn_flow_rearm_after_ack(sn_flow *flow, double now, bool advanced)
{
    sn_connection *c = &flow->connection;
    if (advanced)
        c->unacked_since = now;
    if (flow->scoreboard.count == 0) {
        c->rto_at = c->pto = INFINITY;
        return schedule_trim(c, now);
    }
    bool schedule = sn_flow_arm_rto(flow, now);
    return sn_flow_arm_pto(flow, now) || schedule;
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
}

/* Processes the acknowledgement of new data. Returns whether the flow is to be scheduled. */
static bool acknowledge(sn_flow *flow, int64_t una, double now)
{
    sn_ack ack;
    sn_flow_begin_ack(flow, &ack, una, now);
    sn_flow_measure(flow, &ack, true, 0);
    flow->connection.reo_timer = INFINITY;
    if (ack.wire_bytes) {
        sn_flow_arrived(flow, &ack);
        sn_congestion_on_ack(flow, &ack);
    }
    return sn_flow_rearm_after_ack(flow, now, true);
}

/* Takes data that is next in order. Returns whether its acknowledgement waits. */
static bool take_data(sn_flow *flow, const sn_segment *s, double now)
{
    flow->receive.rcv_nxt += s->length;
    flow->receive.unread += s->length;
    flow->connection.gap_at = INFINITY;
    return sn_delayed_ack_should_delay(&flow->delayed_ack, s->frames, s->length, now) &&
           !flow->connection.ack_pending;
}

uint32_t sn_flow_receive(sn_flow *flow, const sn_segment *s, double now)
{
    sn_connection *c = &flow->connection;
    sn_send *snd = &flow->send;
    int64_t position = flow->receive.rcv_nxt, ack = sn_position(snd->iss, s->ack, snd->snd_una);
    uint32_t left = SN_DONE;
    c->frames_received += s->frames;
    sn_flow_heard(flow, position, s->has_timestamps ? (int64_t)s->ts_value : -1, now);
    if (ack > snd->snd_una) {
        if (acknowledge(flow, ack, now))
            left |= SN_SCHEDULE;
        if (c->wants_space)
            left |= SN_WRITABLE;
    }
    sn_send_update_window(snd, position, ack, s->window, true);
    if (s->length) {
        left |= SN_DELIVER;
        if (now >= flow->receive_tuning.round_ends) {
            tune(flow, &flow->receive_tuning, s, now);
            if (schedule_trim(c, now))
                left |= SN_SCHEDULE;
        }
        if (!take_data(flow, s, now))
            c->ack_pending = true;
        else if (flow->delayed_ack.at < c->scheduled_at)
            left |= SN_SCHEDULE;
    }
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
