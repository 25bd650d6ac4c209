/* The scoreboard of RFC 6675, kept by ranges: softnic/tcp/scoreboard.py says what its operations mean. */
#include "tcp/scoreboard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/array.h"

void sn_ack_begin(sn_ack *ack, double now, int64_t flight_size)
{
    *ack = (sn_ack){.now = now, .flight_size = flight_size, .never_retransmitted = true};
}

static sn_range *at(const sn_scoreboard *board, int64_t index)
{
    return board->ranges + board->first + index;
}

sn_range *sn_scoreboard_first(const sn_scoreboard *board)
{
    return at(board, 0);
}

bool sn_scoreboard_has_room(const sn_scoreboard *board, int64_t more)
{
    return sn_array_has_room(board->first, board->count, board->capacity, more);
}

bool sn_scoreboard_sent_once(const sn_scoreboard *board)
{
    for (int64_t index = 0; index < board->count; index++)
        if (!at(board, index)->never_retransmitted && at(board, index)->state == SN_OUT)
            return false;
    return true;
}

/* Makes room for `more` ranges behind the last one. */
static int reserve(sn_scoreboard *board, int64_t more)
{
    sn_range *ranges =
        sn_array_reserve(board->ranges, sizeof *ranges, &board->first, board->count, &board->capacity, more);
    if (ranges == NULL)
        return -1;
    board->ranges = ranges;
    return 0;
}

/* The sum of a range's state. */
static int64_t *sum_of(sn_scoreboard *board, const sn_range *range)
{
    return range->state == SN_OUT ? &board->pipe : range->state == SN_SACKED ? &board->sacked : &board->lost;
}

static sn_range new_range(sn_scoreboard *board, int64_t start, int64_t end, int64_t wire_bytes, double now, bool once)
{
    board->pipe += wire_bytes;
    return (sn_range){
        .start = start,
        .end = end,
        .wire_bytes = wire_bytes,
        .sent_at = now,
        .delivered = board->delivered,
        .delivered_at = board->delivered_at,
        .first_sent_at = board->first_sent_at,
        .never_retransmitted = once,
        .app_limited = board->delivered < board->app_limited_until,
    };
}

/* Cuts a range at a position inside it: it becomes the first part, and the second one is returned. */
static sn_range cut(sn_range *range, int64_t position)
{
    int64_t share =
        (int64_t)((__int128)range->wire_bytes * (position - range->start) / (range->end - range->start));
    sn_range rest = *range;
    rest.start = position;
    rest.wire_bytes -= share;
    range->end = position;
    range->wire_bytes = share;
    return rest;
}

static void insert(sn_scoreboard *board, int64_t index, sn_range range)
{
    memmove(at(board, index + 1), at(board, index), (size_t)(board->count - index) * sizeof range);
    *at(board, index) = range;
    board->count++;
}

static void remove_some(sn_scoreboard *board, int64_t index, int64_t count)
{
    memmove(at(board, index), at(board, index + count), (size_t)(board->count - index - count) * sizeof(sn_range));
    board->count -= count;
}

/* Index of the range with this position. */
static int64_t find(const sn_scoreboard *board, int64_t position)
{
    int64_t low = 0, high = board->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (at(board, middle)->start <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* Cuts ranges at `start` and `end`: to the indices of the first one between and of the one behind. */
static int cut_out(sn_scoreboard *board, int64_t start, int64_t end, int64_t *first, int64_t *after)
{
    if (reserve(board, 2))
        return -1;
    *first = find(board, start);
    if (at(board, *first)->start < start) {
        sn_range rest = cut(at(board, *first), start);
        insert(board, ++*first, rest);
    }
    int64_t last = find(board, end - 1);
    if (at(board, last)->end > end) {
        sn_range rest = cut(at(board, last), end);
        insert(board, last + 1, rest);
    }
    *after = last + 1;
    return 0;
}

int sn_scoreboard_sent(sn_scoreboard *board, int64_t start, int64_t end, int64_t wire_bytes, double now)
{
    if (reserve(board, 1))
        return -1;
    if (board->count == 0)
        board->delivered_at = board->first_sent_at = now;
    *at(board, board->count) = new_range(board, start, end, wire_bytes, now, true);
    board->count++;
    return 0;
}

void sn_scoreboard_mark_app_limited(sn_scoreboard *board)
{
    board->app_limited_until = board->delivered + board->pipe;
}

int sn_scoreboard_sent_again(sn_scoreboard *board, int64_t start, int64_t end, int64_t wire_bytes, double now)
{
    int64_t first, after;
    if (board->count == 0)
        return 0;
    if (cut_out(board, start, end, &first, &after))
        return -1;
    for (int64_t index = first; index < after; index++)
        *sum_of(board, at(board, index)) -= at(board, index)->wire_bytes;
    remove_some(board, first + 1, after - first - 1);
    *at(board, first) = new_range(board, start, end, wire_bytes, now, false);
    return 0;
}

void sn_scoreboard_arrived(sn_scoreboard *board, const sn_ack *ack)
{
    board->delivered += ack->wire_bytes;
    board->delivered_at = ack->now;
    if (ack->has_newest)
        board->first_sent_at = ack->newest.sent_at;
}

/* Adds a range that has arrived; `highest` is the end of what had arrived before. */
static void add(sn_ack *ack, const sn_range *range, int64_t highest)
{
    ack->wire_bytes += range->wire_bytes;
    if (!ack->has_newest || range->sent_at > ack->newest.sent_at ||
        (range->sent_at == ack->newest.sent_at && range->end > ack->newest.end)) {
        ack->newest = *range;
        ack->has_newest = true;
    }
    if (!range->never_retransmitted)
        ack->never_retransmitted = false;
    else if (range->end < highest)
        ack->reordered = true;
}

void sn_scoreboard_acknowledge(sn_scoreboard *board, int64_t una, sn_ack *ack)
{
    while (board->count > 0) {
        sn_range *range = at(board, 0), arrived = *range;
        if (arrived.end > una) {
            if (arrived.start >= una)
                break;
            *range = cut(&arrived, una);
        } else {
            board->first++;
            board->count--;
        }
        *sum_of(board, &arrived) -= arrived.wire_bytes;
        if (arrived.state != SN_SACKED)
            add(ack, &arrived, board->highest);
        if (arrived.end == una)
            break;
    }
    if (una > board->highest)
        board->highest = una;
}

/* Joins SACKED ranges with their SACKED neighbours. */
static void join(sn_scoreboard *board, int64_t first, int64_t after)
{
    if (first > 0 && at(board, first - 1)->state == SN_SACKED)
        first--;
    if (after < board->count && at(board, after)->state == SN_SACKED)
        after++;
    sn_range *whole = at(board, first);
    for (int64_t index = first + 1; index < after; index++)
        whole->wire_bytes += at(board, index)->wire_bytes;
    whole->end = at(board, after - 1)->end;
    remove_some(board, first + 1, after - first - 1);
}

int sn_scoreboard_sack(sn_scoreboard *board, int64_t start, int64_t end, sn_ack *ack)
{
    if (board->count == 0)
        return 0;
    int64_t lowest = at(board, 0)->start, highest = at(board, board->count - 1)->end;
    if (start < lowest)
        start = lowest;
    if (end > highest)
        end = highest;
    if (start >= end)
        return 0;
    const sn_range *known = at(board, find(board, start));
    if (known->state == SN_SACKED && known->end >= end)
        return 0; /* as most reports are */
    int64_t first, after;
    if (cut_out(board, start, end, &first, &after))
        return -1;
    for (int64_t index = first; index < after; index++) {
        sn_range *range = at(board, index);
        if (range->state == SN_SACKED)
            continue;
        add(ack, range, board->highest);
        *sum_of(board, range) -= range->wire_bytes;
        board->sacked += range->wire_bytes;
        range->state = SN_SACKED;
    }
    join(board, first, after);
    if (end > board->highest)
        board->highest = end;
    return 0;
}

void sn_scoreboard_mark_lost(sn_scoreboard *board, sn_range *range)
{
    board->pipe -= range->wire_bytes;
    board->lost += range->wire_bytes;
    board->lost_total += range->wire_bytes;
    range->state = SN_LOST;
}

int sn_scoreboard_mark_head_lost(sn_scoreboard *board, int64_t wire_bytes)
{
    if (board->count == 0)
        return 0;
    if (reserve(board, 1))
        return -1;
    sn_range *head = at(board, 0);
    if (head->state != SN_OUT)
        return 0;
    if (head->wire_bytes > wire_bytes) {
        int64_t length = (int64_t)((__int128)(head->end - head->start) * wire_bytes / head->wire_bytes);
        if (length) {
            sn_range rest = cut(head, head->start + length);
            insert(board, 1, rest);
        }
    }
    sn_scoreboard_mark_lost(board, at(board, 0));
    return 0;
}

void sn_scoreboard_on_sack_reneging(sn_scoreboard *board)
{
    for (int64_t index = 0; index < board->count; index++)
        if (at(board, index)->state == SN_SACKED) {
            at(board, index)->state = SN_OUT;
            at(board, index)->never_retransmitted = false;
        }
    board->pipe += board->sacked;
    board->sacked = 0;
}

void sn_scoreboard_undo_lost_marks(sn_scoreboard *board)
{
    for (int64_t index = 0; index < board->count; index++)
        if (at(board, index)->state == SN_LOST)
            at(board, index)->state = SN_OUT;
    board->pipe += board->lost;
    board->lost_total -= board->lost;
    board->lost = 0;
}

double sn_scoreboard_detect(sn_scoreboard *board, double sent_at, int64_t end, double wait, double now)
{
    const double granularity = 1e-6; /* tolerance for rounding of sums of times */
    double until = INFINITY;
    for (int64_t index = 0; index < board->count; index++) {
        sn_range *range = at(board, index);
        if (range->state != SN_OUT || range->sent_at > sent_at || (range->sent_at == sent_at && range->end >= end))
            continue;
        double due = range->sent_at + wait;
        if (due <= now + granularity)
            sn_scoreboard_mark_lost(board, range);
        else if (until == INFINITY || due > until)
            until = due;
    }
    return until;
}

void sn_scoreboard_time_out(sn_scoreboard *board, double rtt, double window, double now)
{
    for (int64_t index = 0; index < board->count; index++) {
        sn_range *range = at(board, index);
        if (range->state == SN_OUT && (index == 0 || range->sent_at + rtt + window <= now))
            sn_scoreboard_mark_lost(board, range);
    }
}

bool sn_scoreboard_first_lost(const sn_scoreboard *board, int64_t *range)
{
    bool found = false;
    for (int64_t index = 0; index < board->count; index++) {
        const sn_range *each = at(board, index);
        if (each->state == SN_LOST) {
            if (!found)
                range[0] = each->start;
            range[1] = each->end;
            found = true;
        } else if (found) {
            break;
        }
    }
    return found;
}

void sn_scoreboard_clear(sn_scoreboard *board)
{
    free(board->ranges);
    board->ranges = NULL;
    board->first = board->count = board->capacity = 0;
    board->pipe = board->sacked = board->lost = 0;
}
