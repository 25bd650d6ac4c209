/* Floating-point steps of flows with made-up acknowledgements, printed to the bit: what test_arithmetic.py compares. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tcp/flow.h"
#include "tcp/flow_steps.h"

enum { STEPS = 4000, MSS = 1448 };

/* The C library's differs in the last bit from machine to machine; only cubes and cube roots are asked for. */
double pow(double base, double exponent)
{
    if (exponent == 3.0)
        return base * base * base;
    double root = 1.0;
    for (int i = 0; i < 200 && base > 0; i++)
        root -= (root - base / (root * root)) / 3;
    return base > 0 ? root : 0.0;
}

static uint64_t state = 88172645463325252;

static double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

static void show(int algorithm, const sn_flow *flow)
{
    const sn_congestion *c = &flow->congestion;
    const sn_retransmission_timeout *rtt = &flow->retransmission_timeout;
    printf("%d %" PRId64 " %" PRId64 " %a %a %a %a %a %a %a\n", algorithm, c->cwnd, c->ssthresh, c->k, c->estimate,
           c->rate, rtt->srtt, rtt->rttvar, flow->pacer.rate, flow->pacer.free_at);
}

static void run(int algorithm)
{
    static sn_flow flow;
    memset(&flow, 0, sizeof flow);
    sn_congestion *c = &flow.congestion;
    *c = (sn_congestion){.algorithm = algorithm, .smss = MSS, .cwnd = 10 * MSS, .ssthresh = INT64_C(1) << 40, .began_at = NAN};
    if (algorithm == SN_BBR)
        sn_congestion_begin_bbr(c);
    flow.retransmission_timeout = (sn_retransmission_timeout){.initial_s = 1, .min_s = 0.02, .max_s = 60};
    flow.pacer.rate = NAN;
    sn_hystart_restart(&flow.hystart);
    double now = 1000.0;
    int64_t una = 0;
    for (int i = 0; i < STEPS; i++) {
        const double rtt = 0.01 + 0.003 * uniform();
        const int64_t bytes = (1 + (int64_t)(uniform() * 10)) * MSS;
        now += rtt * uniform() / 3;
        una += bytes;
        sn_ack ack = {.now = now, .flight_size = c->cwnd};
        ack.rtt = rtt;
        ack.una = una;
        ack.nxt = una + c->cwnd;
        ack.wire_bytes = bytes;
        ack.srtt = flow.retransmission_timeout.srtt;
        ack.pipe = c->cwnd - bytes;
        ack.delivered = una;
        ack.has_newest = ack.never_retransmitted = true;
        ack.newest = (sn_range){.sent_at = now - rtt, .delivered = una - c->cwnd, .delivered_at = now - 1.1 * rtt,
                                .first_sent_at = now - 1.05 * rtt};
        sn_retransmission_timeout_sample(&flow.retransmission_timeout, rtt);
        sn_congestion_on_ack(&flow, &ack);
        sn_pacer_update(&flow.pacer, c, &flow.retransmission_timeout, -INFINITY, now);
        sn_pacer_sent(&flow.pacer, bytes, now);
        if (uniform() < 0.01 && algorithm != SN_BBR) { /* as after a loss (softnic/tcp/cubic.py) */
            const double window = (double)c->cwnd / MSS;
            c->w_max = c->prior = window;
            c->ssthresh = (int64_t)(0.7 * window * MSS);
            c->cwnd = c->ssthresh;
            c->began_at = NAN;
        }
        show(algorithm, &flow);
    }
}

int main(void)
{
    run(SN_RENO);
    run(SN_CUBIC);
    run(SN_BBR);
}
