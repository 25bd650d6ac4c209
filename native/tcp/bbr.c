/* BBR's window and rates; softnic/tcp/bbr.py describes the algorithm and its fields. */
#include "tcp/flow_steps.h"

#include <math.h>
#include <string.h>

enum { RATE_ROUNDS = sizeof((sn_congestion *)0)->rates / sizeof(double) };
enum { LEAST_FRAMES = 4, SLACK_FRAMES = 3, FULL_ROUNDS = 3, CYCLE_PHASES = 8 };

static const double HIGH_GAIN = 2.885; /* 2 / ln 2: the smallest gain that doubles the rate every round trip */
static const double WINDOW_GAIN = 2.0, GROWTH = 1.25, RTT_S = 10.0, PROBE_RTT_S = 0.2;
static const double CYCLE[CYCLE_PHASES] = {1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};

void sn_congestion_begin_bbr(sn_congestion *c)
{
    c->mode = SN_BBR_STARTUP;
    c->gain = HIGH_GAIN;
    c->least_rtt = INFINITY;
    c->probe_ends = NAN;
}

double sn_bbr_pacing_rate(const sn_congestion *c, double rtt)
{
    return c->rate != 0.0 ? c->gain * c->rate : HIGH_GAIN * (double)c->cwnd / rtt;
}

/* The bandwidth-delay product times `gain`, plus a slack for delayed acknowledgements. */
static int64_t product(const sn_congestion *c, double gain)
{
    const double most = 1e15; /* beyond any window, so that it is an integer */
    int64_t carried = c->rate != 0.0 ? (int64_t)smaller(gain * c->rate * c->least_rtt, most) : 0;
    return carried + SLACK_FRAMES * c->smss;
}

static void set_count(sn_congestion *c, int64_t count)
{
    c->rates_count = count;
    c->rate = count ? c->rates[0] : 0.0;
}

/* A rate counts until one is added RATE_ROUNDS round trips later. The rounds may go back (take_rates): then a rate that
   another outlives is not added. So there are never more than RATE_ROUNDS. */
static void add_rate(sn_congestion *c, double rate)
{
    int64_t count = c->rates_count, old = 0;
    while (count && c->rates[count - 1] <= rate)
        count--;
    if (!count || c->rate_rounds[count - 1] < c->round) {
        while (old < count && c->rate_rounds[old] <= c->round - RATE_ROUNDS)
            old++;
        count -= old;
        memmove(c->rates, c->rates + old, (size_t)count * sizeof *c->rates);
        memmove(c->rate_rounds, c->rate_rounds + old, (size_t)count * sizeof *c->rate_rounds);
        c->rates[count] = rate;
        c->rate_rounds[count++] = c->round;
    }
    set_count(c, count);
}

void sn_congestion_take_rates(sn_congestion *c, const sn_congestion *from)
{
    memmove(c->rates, from->rates, sizeof c->rates);
    memmove(c->rate_rounds, from->rate_rounds, sizeof c->rate_rounds);
    set_count(c, from->rates_count);
}

static void check_full_pipe(sn_congestion *c)
{
    if (c->rate >= c->full_rate * GROWTH) {
        c->full_rate = c->rate;
        c->full_rounds = 0;
    } else {
        c->full_rounds++;
    }
}

/* Samples round trip and rate of an acknowledgement. Returns whether the minimum round trip is outdated. */
static bool measure(sn_congestion *c, const sn_ack *ack)
{
    bool expired = c->least_rtt < INFINITY && ack->now > c->least_rtt_at + RTT_S;
    if (ack->rtt > 0 && (ack->rtt <= c->least_rtt || expired)) {
        c->least_rtt = ack->rtt;
        c->least_rtt_at = ack->now;
    }
    if (!ack->has_newest)
        return expired;
    const sn_range *sent = &ack->newest;
    bool starts = sent->delivered >= c->round_ends;
    if (starts) {
        c->round++;
        c->round_ends = ack->delivered;
    }
    /* Acknowledgements that were held and released together show no higher rate than the sender's. */
    double elapsed = larger(ack->now - sent->delivered_at, sent->sent_at - sent->first_sent_at);
    if (c->mode == SN_BBR_PROBE_RTT)
        c->limited_until = ack->delivered + ack->pipe;
    bool limited = sent->app_limited || sent->delivered < c->limited_until;
    double least = c->least_rtt / 2;
    if (elapsed < least || least <= 0)
        return expired;
    double rate = (double)(ack->delivered - sent->delivered) / elapsed;
    if (!limited || rate > c->rate)
        add_rate(c, rate);
    if (starts && !limited)
        check_full_pipe(c);
    return expired;
}

static void enter(sn_congestion *c, int64_t mode, double gain)
{
    c->mode = mode;
    c->gain = gain;
}

static void enter_phase(sn_congestion *c, int64_t phase, double now)
{
    enter(c, SN_BBR_PROBE_BW, CYCLE[phase]);
    c->phase = phase;
    c->phase_at = now;
}

static bool phase_is_over(const sn_congestion *c, const sn_ack *ack)
{
    bool over = ack->now > c->phase_at + c->least_rtt;
    if (c->gain > 1)
        return over && ack->flight_size >= product(c, c->gain);
    return over || (c->gain < 1 && ack->pipe <= product(c, 1.0));
}

static void probe_rtt(sn_congestion *c, const sn_ack *ack)
{
    if (isnan(c->probe_ends)) {
        if (ack->pipe <= LEAST_FRAMES * c->smss)
            c->probe_ends = ack->now + PROBE_RTT_S;
        return;
    }
    if (ack->now < c->probe_ends)
        return;
    c->least_rtt_at = ack->now;
    if (c->cwnd < c->resume)
        c->cwnd = c->resume;
    if (c->full_rounds >= FULL_ROUNDS)
        enter_phase(c, 2, ack->now);
    else
        enter(c, SN_BBR_STARTUP, HIGH_GAIN);
}

static void change_mode(sn_congestion *c, const sn_ack *ack, bool expired)
{
    if (c->mode == SN_BBR_STARTUP && c->full_rounds >= FULL_ROUNDS)
        enter(c, SN_BBR_DRAIN, 1 / HIGH_GAIN);
    if (c->mode == SN_BBR_DRAIN && ack->pipe <= product(c, 1.0))
        enter_phase(c, 2, ack->now);
    if (c->mode == SN_BBR_PROBE_BW && phase_is_over(c, ack))
        enter_phase(c, (c->phase + 1) % CYCLE_PHASES, ack->now);
    if (c->mode != SN_BBR_PROBE_RTT && expired && c->rate != 0.0) {
        enter(c, SN_BBR_PROBE_RTT, 1.0);
        c->resume = c->cwnd;
        c->probe_ends = NAN;
    }
    if (c->mode == SN_BBR_PROBE_RTT)
        probe_rtt(c, ack);
}

void sn_bbr_on_ack(sn_congestion *c, const sn_ack *ack)
{
    const int64_t least = LEAST_FRAMES * c->smss;
    change_mode(c, ack, measure(c, ack));
    if (c->mode == SN_BBR_PROBE_RTT) {
        if (least < c->cwnd)
            c->cwnd = least;
        return;
    }
    int64_t target = product(c, c->mode == SN_BBR_STARTUP ? HIGH_GAIN : WINDOW_GAIN);
    if (c->rate == 0.0 || c->cwnd < target)
        c->cwnd += ack->wire_bytes;
    if (c->rate != 0.0 && c->mode != SN_BBR_STARTUP && target < c->cwnd)
        c->cwnd = target;
    if (c->cwnd < least)
        c->cwnd = least;
}
