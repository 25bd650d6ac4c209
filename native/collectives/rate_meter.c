/* What this rank's link carries, as its acknowledgements show. Schedules are cut by it where ranks differ
   (softnic/collectives/schedule/paths.py). */
#include "collectives/engine.h"

static const double WINDOW_S = 0.1; /* longer than acknowledgements are held up, shorter than large calls take */

void sn_engine_look_at_rate(sn_engine *engine, double now)
{
    sn_rate_meter *meter = &engine->meter;
    const double elapsed = now - meter->began_at;
    int64_t sent = 0, delivered = 0;
    uint32_t waiting = 0;
    if (elapsed >= 0 && elapsed < WINDOW_S)
        return;
    for (uint32_t i = 0; i < engine->queue_count; i++) {
        const sn_flow *flow = engine->send_order[i]->flow;
        sent += flow->connection.wire_bytes_sent;
        delivered += flow->scoreboard.delivered;
        waiting += flow->send.snd_nxt < flow->send_buffer.end;
    }
    const bool goes_on = elapsed >= 0 && elapsed < 2 * WINDOW_S;
    if (!goes_on || waiting > meter->most_waiting)
        meter->most_waiting = waiting;
    /* If most flows had bytes to send before and after, the link was their limit; a single one may have a slow receiver. */
    const bool limited = waiting && 2 * waiting >= meter->most_waiting;
    if (goes_on && limited && meter->limited) {
        const int64_t out = sent - meter->sent, in = delivered - meter->delivered; /* acknowledgements come in bursts */
        const double rate = (double)(out < in ? out : in) / elapsed;
        if (meter->rate < rate)
            meter->rate = rate;
    }
    meter->began_at = now;
    meter->sent = sent;
    meter->delivered = delivered;
    meter->limited = limited;
}
