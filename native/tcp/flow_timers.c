/* When a flow sends again what was not acknowledged, when it acknowledges, and when it returns memory: softnic/tcp/arm_timers.py
   and delayed_ack.py describe it. */
#include "tcp/flow_steps.h"

#include <math.h>

/* The time to the next retransmission. A user timeout of a few seconds, by which a peer counts as dead, leaves a timer that
   is backed off few tries, and on a lossy path all of them may be lost: it is then backed off no further than an eighth. */
static double retransmit_after(const sn_flow *flow)
{
    const double few_s = 5.0, part = 1.0 / 8;
    const sn_retransmission_timeout *rtt = &flow->retransmission_timeout;
    if (!flow->connection.established || flow->connection.user_timeout_s > few_s || !rtt->backoff)
        return rtt->rto;
    const double first = ldexp(rtt->rto, -(int)smaller((double)rtt->backoff, 30));
    return smaller(rtt->rto, larger(first, part * flow->connection.user_timeout_s));
}

bool sn_flow_arm_rto(sn_flow *flow, double now)
{
    sn_connection *c = &flow->connection;
    double at = now + retransmit_after(flow), give_up_at = c->unacked_since + c->user_timeout_s;
    if (at > give_up_at)
        at = give_up_at > now ? give_up_at : now;
    c->rto_at = at;
    return at < c->scheduled_at;
}

bool sn_flow_arm_pto(sn_flow *flow, double now)
{
    sn_connection *c = &flow->connection;
    const double srtt = flow->retransmission_timeout.srtt;
    c->pto = INFINITY;
    if (c->use_sack && flow->recovery.is_open)
        c->pto = now + sn_rack_probe_after(&flow->rack, &flow->scoreboard, flow->congestion.smss, srtt);
    if (c->pto >= c->rto_at)
        c->pto = INFINITY;
    return c->pto < c->scheduled_at;
}

bool sn_flow_schedule_trim(sn_flow *flow, double now)
{
    sn_connection *c = &flow->connection;
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
        return sn_flow_schedule_trim(flow, now);
    }
    bool schedule = sn_flow_arm_rto(flow, now);
    return sn_flow_arm_pto(flow, now) || schedule;
}

bool sn_delayed_ack_should_delay(sn_delayed_ack *delayed, int64_t frames, int64_t size, double now)
{
    delayed->arrived_at = now;
    if (size >= 128 * frames) {
        delayed->frames += frames;
        delayed->batch = delayed->batch || frames > 1;
    }
    if (delayed->answers < delayed->needed || delayed->frames >= 2 || delayed->batch)
        return false;
    if (delayed->at == INFINITY)
        delayed->at = now + delayed->delay_s;
    return true;
}

void sn_delayed_ack_expired(sn_delayed_ack *delayed)
{
    const int64_t most_needed = 256;
    delayed->at = INFINITY;
    delayed->answers = 0;
    delayed->needed = 2 * delayed->needed < most_needed ? 2 * delayed->needed : most_needed;
}

void sn_delayed_ack_on_pure_ack(sn_delayed_ack *delayed)
{
    delayed->at = INFINITY;
    delayed->frames = 0;
}

void sn_delayed_ack_on_piggybacked(sn_delayed_ack *delayed, double now)
{
    delayed->at = INFINITY;
    delayed->frames = 0;
    delayed->batch = false;
    if (now - delayed->arrived_at <= delayed->delay_s) {
        delayed->answers++;
        if (delayed->needed > 1 && delayed->answers >= 2 * delayed->needed) {
            delayed->needed /= 2;
            delayed->answers = delayed->needed;
        }
    }
    delayed->arrived_at = -INFINITY;
}
