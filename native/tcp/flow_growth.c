/* Round trips, congestion windows and pacing: softnic/tcp/rto.py, hystart.py, congestion.py, reno.py, cubic.py and
   pacing.py describe them. */
#include "tcp/flow_steps.h"

#include <math.h>

/* For pacing: a window is hardly longer than a burst on shorter paths, and timers are too coarse. */
static bool is_long_enough(double rtt)
{
    return rtt >= 0.002;
}

static void set_rto(sn_retransmission_timeout *rtt)
{
    const double granularity = 0.001;
    double rto = rtt->initial_s, variation = 4 * rtt->rttvar;
    if (rtt->srtt != 0.0) {
        rto = rtt->srtt + (variation > granularity ? variation : granularity);
        if (rto < rtt->min_s)
            rto = rtt->min_s;
    }
    rto = ldexp(rto, (int)(rtt->backoff < 30 ? rtt->backoff : 30));
    rtt->rto = rto < rtt->max_s ? rto : rtt->max_s;
}

void sn_retransmission_timeout_sample(sn_retransmission_timeout *rtt, double sample)
{
    rtt->latest = sample;
    if (rtt->srtt == 0.0) {
        rtt->srtt = larger(sample, 1e-9);
        rtt->rttvar = sample / 2;
    } else {
        rtt->rttvar += 1.0 / 4 * (fabs(rtt->srtt - sample) - rtt->rttvar);
        rtt->srtt += 1.0 / 8 * (sample - rtt->srtt);
    }
    set_rto(rtt);
}

void sn_retransmission_timeout_back_off(sn_retransmission_timeout *rtt)
{
    rtt->backoff++;
    set_rto(rtt);
}

void sn_retransmission_timeout_answered(sn_retransmission_timeout *rtt)
{
    rtt->backoff = 0;
    set_rto(rtt);
}

void sn_hystart_restart(sn_hystart *h)
{
    *h = (sn_hystart){.last = INFINITY, .current = INFINITY, .baseline = INFINITY};
}

int64_t sn_hystart_on_ack(sn_hystart *h, int64_t una, int64_t nxt, double rtt)
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
    if (una >= h->window_end) {
        h->window_end = nxt;
        h->last = h->current;
        h->current = INFINITY;
        h->samples = 0;
        if (conservative && ++h->rounds >= 5)
            return 0;
    }
    return h->baseline < INFINITY ? 4 : 1;
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
    const double beta = SN_CUBIC_BETA_PERCENT / 100.0, factor = 0.4, alpha = 3 * (1 - beta) / (1 + beta);
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

enum { QUEUELESS_LOSSES = 8 };

void sn_congestion_count_loss(sn_flow *flow)
{
    const double queue = 1.25;
    sn_congestion *c = &flow->congestion;
    if (!c->by_path || c->algorithm != SN_CUBIC)
        return;
    const bool queueless = flow->retransmission_timeout.srtt <= queue * sn_minimum_rtt_least(&flow->minimum_rtt);
    c->queueless_losses = queueless ? c->queueless_losses + 1 : 0;
}

/* Continues with the algorithm for the path's round trip (softnic/tcp/auto.py). */
static void choose_by_path(sn_flow *flow, double now)
{
    sn_congestion *c = &flow->congestion;
    const double least = sn_minimum_rtt_least(&flow->minimum_rtt);
    const bool known = least < INFINITY, is_long = known && 1000 * least >= SN_LONG_RTT_MS;
    const bool is_lossy = known && is_long_enough(least) && c->queueless_losses >= QUEUELESS_LOSSES;
    const int64_t algorithm = is_long || is_lossy ? SN_BBR : SN_CUBIC;
    if (algorithm == c->algorithm)
        return;
    c->algorithm = algorithm;
    flow->recovery.may_undo = false; /* the window from before would be the other algorithm's */
    if (algorithm == SN_BBR) {
        sn_congestion_begin_bbr(c);
        c->least_rtt = c->recent_rtt = least;
        c->least_rtt_at = c->recent_rtt_at = now;
    } else {
        c->ssthresh = c->cwnd;
        c->w_max = c->prior = 0;
        c->began_at = NAN;
    }
}

void sn_congestion_on_ack(sn_flow *flow, const sn_ack *ack)
{
    sn_congestion *c = &flow->congestion;
    if (c->by_path)
        choose_by_path(flow, ack->now);
    if (c->algorithm == SN_BBR) {
        sn_bbr_on_ack(c, ack);
        return;
    }
    if (ack->rtt > 0)
        c->restarting = false;
    int64_t left = ack->wire_bytes;
    bool used = 2 * ack->flight_size >= c->cwnd;
    if (c->cwnd < c->ssthresh) {
        if (!used)
            return;
        int64_t divisor = sn_hystart_on_ack(&flow->hystart, ack->una, ack->nxt, ack->rtt);
        if (divisor == 0) {
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

void sn_congestion_on_loss(sn_congestion *c, int64_t flight_size)
{
    int64_t ssthresh;
    if (c->algorithm == SN_BBR)
        return;
    if (c->algorithm == SN_CUBIC) {
        const double beta = SN_CUBIC_BETA_PERCENT / 100.0;
        const double window = (double)(flight_size < c->cwnd ? flight_size : c->cwnd) / (double)c->smss;
        /* Who still had less than before the last loss leaves room to newcomers (RFC 9438, section 4.7). */
        c->w_max = window < c->w_max ? window * (1 + beta) / 2 : window;
        c->prior = window;
        c->began_at = NAN;
        ssthresh = (int64_t)(beta * window * (double)c->smss);
    } else {
        ssthresh = flight_size / 2;
        c->acknowledged = 0;
    }
    c->ssthresh = ssthresh > 2 * c->smss ? ssthresh : 2 * c->smss;
}

void sn_congestion_on_timeout(sn_congestion *c, int64_t flight_size, bool first)
{
    if (first)
        sn_congestion_on_loss(c, flight_size);
    c->cwnd = c->smss;
}

void sn_congestion_restore(sn_congestion *c, const sn_congestion *before)
{
    const sn_congestion now = *c;
    *c = *before;
    if (c->algorithm == SN_BBR)
        sn_bbr_keep_rates(c, &now);
}

/* The round trip to pace by: srtt lags behind a queue that has drained, and cwnd / srtt would then be less than the window
   allows. */
static double pacing_rtt(const sn_retransmission_timeout *rtt)
{
    return smaller(rtt->srtt, rtt->latest);
}

void sn_congestion_on_idle(sn_flow *flow, double idle_s)
{
    const double half_s = 10.0, known_s = 60.0;
    sn_congestion *c = &flow->congestion;
    const int64_t initial = SN_INITIAL_WINDOW * c->smss, used = 3 * c->cwnd / 4;
    if (c->restarting)
        return; /* nothing has left since */
    c->restarting = true;
    if (idle_s > known_s)
        c->queueless_losses = 0;
    if (c->algorithm == SN_BBR) {
        if (idle_s > known_s) {
            sn_congestion_begin_bbr(c);
            c->cwnd = initial;
        }
        return;
    }
    sn_hystart_restart(&flow->hystart);
    c->began_at += idle_s; /* CUBIC's clock stood still */
    c->seen_at += idle_s;
    if (c->cwnd <= initial)
        return;
    if (c->ssthresh < used)
        c->ssthresh = used;
    const bool paced = is_long_enough(pacing_rtt(&flow->retransmission_timeout)); /* what is not would be a burst */
    const int64_t left = paced ? (int64_t)ldexp((double)c->cwnd, -(int)smaller(idle_s / half_s, 60.0)) : 0;
    c->cwnd = left > initial ? left : initial;
}

double sn_congestion_pacing_rate(const sn_congestion *c, double rtt)
{
    if (c->algorithm == SN_BBR)
        return sn_bbr_pacing_rate(c, rtt);
    if (c->restarting && c->cwnd <= SN_INITIAL_WINDOW * c->smss)
        return NAN;
    return (2 * c->cwnd < c->ssthresh ? 2.0 : 1.2) * (double)c->cwnd / rtt;
}

bool sn_pacer_update(sn_pacer *pacer, const sn_congestion *c, const sn_retransmission_timeout *rtt,
                     double link_full_at, double now)
{
    const double least = pacing_rtt(rtt);
    const bool paced = is_long_enough(least) && now - link_full_at > rtt->srtt;
    pacer->rate = paced ? sn_congestion_pacing_rate(c, least) : NAN;
    return !isnan(pacer->rate);
}

int64_t sn_pacer_burst(const sn_pacer *pacer, int64_t smss, double now)
{
    if (isnan(pacer->rate))
        return 1 << 30;
    if (now < pacer->free_at)
        return 0;
    int64_t frames = (int64_t)(pacer->rate * (0.001 + pacer->late_s)) / smss;
    return frames > 2 ? frames : 2;
}

void sn_pacer_woken(sn_pacer *pacer, double late_s)
{
    const double credit_s = 0.008; /* without a limit, a measured rate (bbr.c) would become that of late turns */
    pacer->late_s = smaller(late_s, credit_s);
}

void sn_pacer_sent(sn_pacer *pacer, int64_t wire_bytes, double now)
{
    if (isnan(pacer->rate))
        return;
    pacer->free_at = larger(pacer->free_at, now - 0.001 - pacer->late_s) + (double)wire_bytes / pacer->rate;
    pacer->late_s = 0.0;
}
