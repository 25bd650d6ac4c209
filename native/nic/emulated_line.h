/* What one link has waiting in a bottleneck that it shares with others: batches, with the time at which the bottleneck will
   have sent each. Without others, the time at which it is free says as much. */
#ifndef SOFTNIC_EMULATED_LINE_H
#define SOFTNIC_EMULATED_LINE_H
#include <math.h>
#include <stdint.h>

#include "nic/emulated_link.h"

static inline sn_emulated_batch *sn_emulated_line_at(sn_emulated_line *line, uint32_t index)
{
    return &line->batches[(line->first + index) % SN_EMULATED_BATCHES];
}

/* Adds a batch that is sent by `end`. If there are too many, it is counted as part of the last one, which is then sent
   later than it is. */
static inline void sn_emulated_line_add(sn_emulated_line *line, double end, int64_t bytes)
{
    line->bytes += bytes;
    if (line->count == SN_EMULATED_BATCHES) {
        sn_emulated_batch *last = sn_emulated_line_at(line, line->count - 1);
        *last = (sn_emulated_batch){end, last->bytes + bytes};
    } else {
        *sn_emulated_line_at(line, line->count++) = (sn_emulated_batch){end, bytes};
    }
}

/* Returns the bytes that wait at the time `now`, which never goes back. */
static inline int64_t sn_emulated_line_waiting(sn_emulated_line *line, double now)
{
    while (line->count && sn_emulated_line_at(line, 0)->end <= now) {
        line->bytes -= sn_emulated_line_at(line, 0)->bytes;
        line->first = (line->first + 1) % SN_EMULATED_BATCHES;
        line->count--;
    }
    return line->bytes;
}

/* Returns when no more than `bytes` will wait; -infinity: that is so already. */
static inline double sn_emulated_line_falls_to(const sn_emulated_line *line, int64_t bytes)
{
    int64_t left = line->bytes;
    double at = -INFINITY;
    for (uint32_t i = 0; i < line->count && left > bytes; i++) {
        const sn_emulated_batch *batch = &line->batches[(line->first + i) % SN_EMULATED_BATCHES];
        left -= batch->bytes;
        at = batch->end;
    }
    return at;
}

#endif
