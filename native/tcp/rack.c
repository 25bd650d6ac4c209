/* Which ranges are lost, and when to probe for it: softnic/tcp/rack.py describes it. */
#include "tcp/flow_steps.h"

#include <math.h>

enum {
    ENOUGH = 5,  /* half segments: a share of a range's wire bytes may be rounded, so three segments have 5 at least */
    PERSIST = 16 /* recoveries after which the extension of the window ends */
};

void sn_minimum_rtt_sample(sn_minimum_rtt *minimum, double rtt, double now)
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

void sn_rack_update(sn_flow *flow, const sn_ack *ack, sn_maybe_number repeat_rtt)
{
    sn_rack *rack = &flow->rack;
    const sn_range *sent = &ack->newest;
    if (ack->reordered)
        rack->reordering_seen = true;
    if (!ack->has_newest)
        return;
    double rtt = ack->now - sent->sent_at, least = sn_minimum_rtt_least(&flow->minimum_rtt);
    if (sent->never_retransmitted)
        sn_minimum_rtt_sample(&flow->minimum_rtt, rtt, ack->now);
    else if (repeat_rtt > rtt + 0.002 || (rtt < least && least < INFINITY))
        return; /* it answers an earlier transmission; timestamps count milliseconds */
    rack->rtt = rtt;
    if (sent->sent_at > rack->sent_at || (sent->sent_at == rack->sent_at && sent->end > rack->end)) {
        rack->sent_at = sent->sent_at;
        rack->end = sent->end;
    }
}

void sn_rack_duplicate(sn_rack *rack, int64_t una, int64_t nxt)
{
    if (rack->probe_end != -1 && rack->probe_repeats) {
        rack->probe_dsacked = true;
    } else if (una >= rack->dsack_round) { /* -1: there was none */
        rack->dsack_round = nxt;
        rack->multiplier++;
        rack->persist = PERSIST;
    }
}

void sn_rack_recovered(sn_rack *rack)
{
    rack->persist--;
    if (rack->persist <= 0)
        rack->multiplier = 1;
}

double sn_rack_window(sn_flow *flow, const sn_scoreboard *board, bool recovering, int64_t smss, double srtt)
{
    const sn_rack *rack = &flow->rack;
    const double least = sn_minimum_rtt_least(&flow->minimum_rtt);
    if (!rack->reordering_seen && (recovering || 2 * board->sacked >= ENOUGH * smss))
        return 0.0;
    return least < INFINITY ? smaller((double)rack->multiplier * least / 4, srtt) : srtt;
}

double sn_rack_detect(const sn_rack *rack, sn_scoreboard *board, double window, double now)
{
    return sn_scoreboard_detect(board, rack->sent_at, rack->end, rack->rtt + window, now);
}

void sn_rack_timed_out(sn_rack *rack, sn_scoreboard *board, double now, double window)
{
    if (board->count && sn_scoreboard_first(board)->state == SN_SACKED)
        sn_scoreboard_on_sack_reneging(board);
    sn_scoreboard_time_out(board, rack->rtt, window, now);
    rack->probe_end = -1;
}

double sn_rack_probe_after(const sn_rack *rack, const sn_scoreboard *board, int64_t smss, double srtt)
{
    if (rack->probe_end != -1 || board->sacked)
        return INFINITY;
    if (srtt == 0.0)
        return 1.0;
    double after = 2 * srtt;
    if (board->pipe <= smss)
        after += rack->peer_ack_delay_s;
    return after > 0.01 ? after : 0.01;
}

void sn_rack_probed(sn_rack *rack, int64_t end, bool repeats)
{
    rack->probe_end = end;
    rack->probe_repeats = repeats;
    rack->probe_dsacked = false;
}

bool sn_rack_probe_answered(sn_rack *rack, int64_t ack)
{
    if (rack->probe_end == -1 || ack < rack->probe_end)
        return false;
    rack->probe_end = -1;
    return rack->probe_repeats && !rack->probe_dsacked;
}
