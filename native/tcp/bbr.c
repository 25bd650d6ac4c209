/* BBR's window and rates; softnic/tcp/bbr.py describes the algorithm and its fields. */
#include "tcp/flow_steps.h"

#include <math.h>
#include <string.h>

enum { RATE_ROUNDS = sizeof((sn_congestion *)0)->rates / sizeof(double) };
enum { LEAST_FRAMES = 4, SLACK_FRAMES = 3, FULL_ROUNDS = 3, CYCLE_PHASES = 8 };

static const double HIGH_GAIN = 2.885; /* 2 / ln 2: the smallest gain that doubles the rate every round trip */
static const double LOSS_SHARE = 0.02, LOSS_BETA = 0.7, HEADROOM = 0.85;
enum { COUNTED_FRAMES = 500, REACH_ROUNDS = 3, FIRST_STEP_FRAMES = 16 };
static const double WINDOW_GAIN = 1.5, LARGE_WINDOW_GAIN = 2.0, QUEUELESS = 1.25, PROBE_RTT_GAIN = 0.5, GROWTH = 1.25;
static const double LEAST_RTT_S = 10.0, RECENT_RTT_S = 5.0, PROBE_RTT_S = 0.2, BOUNDED_S = 0.5;
static const double RECOVERED = 0.6; /* share of the time that CUBIC needs */
static const int64_t REMEMBERED = 6;  /* such times */
static const double CYCLE[CYCLE_PHASES] = {1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};

static void set_count(sn_congestion *c, int64_t count)
{
    c->rates_count = count;
    c->rate = count ? c->rates[0] : 0.0;
}

void sn_congestion_begin_bbr(sn_congestion *c)
{
    c->mode = SN_BBR_STARTUP;
    c->gain = HIGH_GAIN;
    c->least_rtt = c->recent_rtt = INFINITY;
    c->probe_ends = NAN;
    c->full_rate = 0.0;
    c->crowded_at = -INFINITY;
    c->full_rounds = c->limited_until = c->bound = c->seen_lost = 0;
    set_count(c, 0);
}

double sn_bbr_pacing_rate(const sn_congestion *c, double rtt)
{
    if (c->rate == 0.0)
        return HIGH_GAIN * (double)c->cwnd / rtt;
    /* The first samples are of less than the initial window. */
    const double least = c->mode == SN_BBR_STARTUP ? HIGH_GAIN * (double)(SN_INITIAL_WINDOW * c->smss) / rtt : 0.0;
    return larger(c->gain * c->rate, least);
}

/* The bandwidth-delay product times `gain`, plus a slack for delayed acknowledgements. */
static int64_t product(const sn_congestion *c, double gain)
{
    const double most = 1e15; /* beyond any window, so that it is an integer */
    int64_t carried = c->rate != 0.0 ? (int64_t)smaller(gain * c->rate * c->least_rtt, most) : 0;
    return carried + SLACK_FRAMES * c->smss;
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

void sn_bbr_keep_rates(sn_congestion *c, const sn_congestion *from)
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

/* At the end of a round: bounds what is in flight if it has cost too much, and has the bound grow again, twice as much each
   time, in rounds in which a higher rate was looked for, and it was reached. Losses are counted over enough frames to tell. */
static void adapt_bound(sn_congestion *c, const sn_ack *ack)
{
    const int64_t lost = ack->lost_total - c->counted_lost, arrived = ack->delivered - c->counted_delivered;
    const int64_t flight = c->round_flight, least = (int64_t)(LOSS_BETA * (double)product(c, 1.0));
    const bool counted = lost + arrived >= COUNTED_FRAMES * c->smss;
    const bool excessive = counted && (double)lost > LOSS_SHARE * (double)(lost + arrived);
    c->round_flight = 0;
    if (counted) {
        c->counted_lost = ack->lost_total;
        c->counted_delivered = ack->delivered;
    }
    if (excessive) {
        const int64_t reduced = (int64_t)(LOSS_BETA * (double)flight);
        if (c->bound == 0 || reduced < c->bound)
            c->bound = reduced > least ? reduced : least;
        c->bound_step = FIRST_STEP_FRAMES * c->smss;
        c->lost_much = true;
        if (c->mode == SN_BBR_STARTUP)
            c->full_rounds = FULL_ROUNDS;
    } else if (c->bound && c->gain > 1 && flight + c->smss >= c->bound) {
        c->bound += c->bound_step;
        c->bound_step *= 2;
    }
}

/* Samples a round trip. Returns whether the recent minimum is outdated. */
static bool measure_rtt(sn_congestion *c, double rtt, double now)
{
    bool expired = c->recent_rtt < INFINITY && now > c->recent_rtt_at + RECENT_RTT_S;
    if (rtt <= 0)
        return expired;
    if (rtt <= c->recent_rtt || expired) {
        c->recent_rtt = rtt;
        c->recent_rtt_at = now;
    }
    if (c->restarting) { /* the pause has emptied the path, as PROBE_RTT would */
        c->restarting = expired = false;
        c->recent_rtt_at = now;
    }
    if (c->recent_rtt <= c->least_rtt || now > c->least_rtt_at + LEAST_RTT_S) {
        c->least_rtt = c->recent_rtt;
        c->least_rtt_at = c->recent_rtt_at;
    }
    return expired;
}

/* Samples round trip and rate of an acknowledgement. Returns whether the recent minimum round trip is outdated. */
static bool measure(sn_congestion *c, const sn_ack *ack)
{
    const bool expired = measure_rtt(c, ack->rtt, ack->now);
    if (!ack->has_newest)
        return expired;
    const sn_range *sent = &ack->newest;
    bool starts = sent->delivered >= c->round_ends;
    if (ack->flight_size > c->round_flight)
        c->round_flight = ack->flight_size;
    if (starts) {
        c->round++;
        c->round_ends = ack->delivered;
        adapt_bound(c, ack);
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
    c->lost_much = false;
}

static bool is_queued(const sn_congestion *c, const sn_ack *ack)
{
    return ack->srtt > QUEUELESS * c->least_rtt;
}

/* Notes losses beside a queue: it was full. */
static void note_losses(sn_congestion *c, const sn_ack *ack)
{
    if (ack->lost_total > c->seen_lost && is_queued(c, ack))
        c->crowded_at = ack->now;
    c->seen_lost = ack->lost_total;
}

/* Seconds between looks for a higher rate that leave a CUBIC stream with a window like ours the time to recover from what
   a look has cost it: K of RFC 9438, section 4.2, or, with few frames in flight, what its growth like Reno's takes (section
   4.3): 0.57 of them in round trips, which the queue makes 1.75 times as long. */
static double yielding_s(const sn_congestion *c)
{
    const double frames = (double)product(c, 1.0) / (double)c->smss;
    return RECOVERED * smaller(cbrt(0.75 * frames), frames * c->least_rtt);
}

static bool phase_is_over(const sn_congestion *c, const sn_ack *ack)
{
    const double lasted = ack->now - c->phase_at;
    bool over = lasted > c->least_rtt;
    if (c->phase == CYCLE_PHASES - 1 && is_queued(c, ack)) {
        const double yielding = yielding_s(c);
        if (ack->now < c->crowded_at + REMEMBERED * yielding)
            return over && lasted > yielding;
    }
    if (c->bound && c->phase == CYCLE_PHASES - 1)
        return lasted > BOUNDED_S;
    if (c->gain > 1) /* a bound is given time to grow, whatever was in flight before */
        return over && (c->lost_much || (ack->flight_size >= product(c, c->gain) &&
                                         (!c->bound || lasted > REACH_ROUNDS * c->least_rtt)));
    return over || (c->gain < 1 && ack->pipe <= product(c, 1.0));
}

/* The phase to begin with: another one for each stream, so that streams that share a path look for more by turns. */
static int64_t first_phase(const sn_congestion *c, const sn_ack *ack)
{
    return 2 + ack->delivered / c->smss % (CYCLE_PHASES - 2);
}

static int64_t probe_rtt_window(const sn_congestion *c)
{
    const int64_t least = LEAST_FRAMES * c->smss, window = product(c, PROBE_RTT_GAIN);
    return window > least ? window : least;
}

static void probe_rtt(sn_congestion *c, const sn_ack *ack)
{
    if (isnan(c->probe_ends)) {
        if (ack->pipe <= probe_rtt_window(c))
            c->probe_ends = ack->now + PROBE_RTT_S;
        return;
    }
    if (ack->now < c->probe_ends)
        return;
    c->recent_rtt_at = ack->now;
    if (c->cwnd < c->resume)
        c->cwnd = c->resume;
    if (c->full_rounds >= FULL_ROUNDS)
        enter_phase(c, first_phase(c, ack), ack->now);
    else
        enter(c, SN_BBR_STARTUP, HIGH_GAIN);
}

static void change_mode(sn_congestion *c, const sn_ack *ack, bool expired)
{
    if (c->mode == SN_BBR_STARTUP && c->full_rounds >= FULL_ROUNDS)
        enter(c, SN_BBR_DRAIN, 1 / HIGH_GAIN);
    if (c->mode == SN_BBR_DRAIN && ack->pipe <= product(c, 1.0))
        enter_phase(c, first_phase(c, ack), ack->now);
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

/* The bound on what is in flight, which leaves room to others except while a higher rate is looked for. */
static int64_t bounded(const sn_congestion *c)
{
    return c->gain > 1 ? c->bound : (int64_t)(HEADROOM * (double)c->bound);
}

void sn_bbr_on_ack(sn_congestion *c, const sn_ack *ack)
{
    const int64_t least = LEAST_FRAMES * c->smss;
    change_mode(c, ack, measure(c, ack));
    note_losses(c, ack);
    if (c->mode == SN_BBR_PROBE_RTT) {
        if (probe_rtt_window(c) < c->cwnd)
            c->cwnd = probe_rtt_window(c);
        return;
    }
    const bool has_room = c->gain > 1 || !is_queued(c, ack);
    int64_t target = product(c, has_room ? LARGE_WINDOW_GAIN : WINDOW_GAIN);
    if (c->rate == 0.0 || c->cwnd < target)
        c->cwnd += ack->wire_bytes;
    if (c->rate != 0.0 && c->mode != SN_BBR_STARTUP && target < c->cwnd)
        c->cwnd = target;
    if (c->bound && bounded(c) < c->cwnd)
        c->cwnd = bounded(c);
    if (c->cwnd < least)
        c->cwnd = least;
}
