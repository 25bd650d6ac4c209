/* Round trips and congestion windows of the loss-free path: softnic/tcp/rto.py, rack.py, hystart.py, congestion.py,
   reno.py, cubic.py and pacing.py, expression by expression. */
#include "flow_steps.h"

#include <math.h>

void sn_sample_rtt(sn_retransmission_timeout *rtt, double sample)
{
    const double granularity = 0.001;
    rtt->latest = sample;
    if (rtt->srtt == 0.0) {
        rtt->srtt = larger(sample, 1e-9);
        rtt->rttvar = sample / 2;
    } else {
        rtt->rttvar += 1.0 / 4 * (fabs(rtt->srtt - sample) - rtt->rttvar);
        rtt->srtt += 1.0 / 8 * (sample - rtt->srtt);
    }
    double variation = 4 * rtt->rttvar;
    double rto = rtt->srtt + (variation > granularity ? variation : granularity);
    if (rto < rtt->min_s)
        rto = rtt->min_s;
    rtt->rto = rto < rtt->max_s ? rto : rtt->max_s;
}

void sn_sample_minimum_rtt(sn_minimum_rtt *minimum, double rtt, double now)
{
    const double period = 60.0;
    if (now - minimum->since > period) {
        minimum->before = now - minimum->since < 2 * period ? minimum->now : INFINITY;
        minimum->now = rtt;
        minimum->since = now;
    } else if (rtt < minimum->now) {
        minimum->now = rtt;
    }
}

/* Returns whether slow start ends here (RFC 9406, section 4.2). */
static bool hystart_on_ack(sn_hystart *h, int64_t una, int64_t nxt, double rtt, int64_t *divisor)
{
    if (rtt > 0) {
        h->current = smaller(h->current, rtt);
        h->samples++;
    }
    bool conservative = h->baseline < INFINITY;
    if (h->samples >= 8 && h->current < INFINITY) {
        if (conservative) {
            if (h->current < h->baseline)
                h->baseline = INFINITY;
        } else if (h->last < INFINITY) {
            double threshold = larger(0.004, smaller(h->last / 8, 0.016));
            if (h->current >= h->last + threshold) {
                h->baseline = h->current;
                h->rounds = 0;
            }
        }
    }
    *divisor = 1;
    if (una >= h->window_end) {
        h->window_end = nxt;
        h->last = h->current;
        h->current = INFINITY;
        h->samples = 0;
        if (conservative && ++h->rounds >= 5)
            return true;
    }
    if (h->baseline < INFINITY)
        *divisor = 4;
    return false;
}

static void reno_avoid(sn_congestion *c, int64_t arrived)
{
    c->acknowledged += arrived;
    if (c->acknowledged >= c->cwnd) {
        c->acknowledged -= c->cwnd;
        c->cwnd += c->smss;
    }
}

static void cubic_avoid(sn_congestion *c, const sn_ack *ack, int64_t arrived, bool used)
{
    const double beta = 0.7, factor = 0.4, alpha = 3 * (1 - beta) / (1 + beta);
    double now = ack->now, smss = (double)c->smss;
    if (!isnan(c->began_at) && !used)
        c->began_at += now - c->seen_at;
    c->seen_at = now;
    if (!used)
        return;
    double window = (double)c->cwnd / smss;
    if (isnan(c->began_at)) {
        c->began_at = now;
        c->w_max = larger(c->w_max, window);
        c->k = pow((c->w_max - window) / factor, 1.0 / 3);
        c->estimate = window;
    }
    double frames = (double)arrived / smss;
    c->estimate += (c->estimate >= c->prior ? 1.0 : alpha) * frames / window;
    double elapsed = now - c->began_at;
    if (factor * pow(elapsed - c->k, 3.0) + c->w_max < c->estimate) {
        int64_t estimate = (int64_t)(c->estimate * smss);
        if (estimate > c->cwnd)
            c->cwnd = estimate;
        return;
    }
    double target = factor * pow(elapsed + ack->srtt - c->k, 3.0) + c->w_max;
    target = smaller(larger(target, window), 1.5 * window);
    c->cwnd += (int64_t)((target - window) / window * frames * smss);
}

void sn_grow_window(sn_congestion *c, sn_hystart *hystart, const sn_ack *ack)
{
    if (ack->rtt > 0)
        c->restarting = false;
    int64_t left = ack->wire_bytes;
    bool used = 2 * ack->flight_size >= c->cwnd;
    if (c->cwnd < c->ssthresh) {
        if (!used)
            return;
        int64_t divisor;
        if (hystart_on_ack(hystart, ack->una, ack->nxt, ack->rtt, &divisor)) {
            c->ssthresh = c->cwnd;
        } else {
            int64_t step = left / divisor, room = c->ssthresh - c->cwnd;
            if (room < step)
                step = room;
            c->cwnd += step;
            left -= step * divisor;
        }
    }
    if (c->cwnd < c->ssthresh)
        return;
    if (c->algorithm == SN_CUBIC)
        cubic_avoid(c, ack, left, used);
    else if (used)
        reno_avoid(c, left);
}

void sn_restart_window(sn_congestion *c, sn_hystart *hystart)
{
    const int64_t initial = 10 * c->smss;
    if (initial < c->cwnd)
        c->cwnd = initial;
    *hystart = (sn_hystart){.last = INFINITY, .current = INFINITY, .baseline = INFINITY};
    c->restarting = true;
}

bool sn_update_pacing(sn_pacer *pacer, const sn_congestion *c, const sn_retransmission_timeout *rtt,
                      double link_full_at, double now)
{
    double least = smaller(rtt->srtt, rtt->latest);
    if (least >= 0.002 && now - link_full_at > rtt->srtt && !c->restarting)
        pacer->rate = (2 * c->cwnd < c->ssthresh ? 2.0 : 1.2) * (double)c->cwnd / least;
    else
        pacer->rate = NAN;
    return !isnan(pacer->rate);
}

int64_t sn_pacing_burst(const sn_pacer *pacer, int64_t smss, double now)
{
    if (now < pacer->free_at)
        return 0;
    int64_t frames = (int64_t)(pacer->rate * (0.001 + pacer->late_s)) / smss;
    return frames > 2 ? frames : 2;
}

void sn_charge_pacing(sn_pacer *pacer, int64_t wire_bytes, double now)
{
    pacer->free_at = larger(pacer->free_at, now - 0.001 - pacer->late_s) + (double)wire_bytes / pacer->rate;
    pacer->late_s = 0.0;
}
