#include "nic/retransmit_cache.h"

#include <stdlib.h>
#include <string.h>

#include "tcp/flow_steps.h"
#include "tcp/send_buffer.h"

enum {
    START = 1, /* position of the first byte of a stream */
    WORD = 4,
    LEAST_RANGES = 8,
    MOST_ADDED = 3 /* ranges by one insertion */
};

struct sn_cached_bytes {
    sn_cached_bytes *next; /* of those that are released */
    uint32_t length;
    uint8_t bytes[];
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* The remainder that is not negative. */
static int64_t modulo(int64_t value, int64_t divisor)
{
    const int64_t rest = value % divisor;
    return rest < 0 ? rest + divisor : rest;
}

static sn_cached_range *range_at(const sn_retransmit_cache *c, uint32_t index) { return c->ranges + c->first + index; }

static sn_cached_range *last_range(const sn_retransmit_cache *c) { return range_at(c, c->count - 1); }

int sn_retransmit_cache_open(sn_retransmit_cache *c, uint32_t iss)
{
    *c = (sn_retransmit_cache){.iss = iss, .una = START};
    c->ranges = malloc(LEAST_RANGES * sizeof *c->ranges);
    if (c->ranges == NULL)
        return -1;
    c->capacity = LEAST_RANGES;
    c->count = 1;
    c->ranges[0] = (sn_cached_range){START, START, SN_UNKNOWN_ORIGIN, SN_PLAIN_BYTES, 0, NULL};
    return 0;
}

void sn_retransmit_give_back(sn_retransmit_cache *c)
{
    c->is_lent = false;
    while (c->released) {
        sn_cached_bytes *next = c->released->next;
        free(c->released);
        c->released = next;
    }
}

/* Drops the bytes of a range. */
static void release(sn_retransmit_cache *c, sn_cached_range *range)
{
    sn_cached_bytes *cached = range->cached;
    range->cached = NULL;
    if (cached && c->is_lent) {
        cached->next = c->released;
        c->released = cached;
    } else {
        free(cached);
    }
}

void sn_retransmit_cache_close(sn_retransmit_cache *c)
{
    sn_retransmit_give_back(c);
    for (uint32_t i = 0; i < c->count; i++)
        release(c, range_at(c, i));
    free(c->ranges);
    *c = (sn_retransmit_cache){0};
}

uint64_t sn_retransmit_cached_bytes(const sn_retransmit_cache *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (range_at(c, i)->cached)
            bytes += range_at(c, i)->cached->length;
    return bytes;
}

/* Index of the first range that ends behind a position. */
static uint32_t index_after(const sn_retransmit_cache *c, int64_t position)
{
    uint32_t low = 0, high = c->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (range_at(c, middle)->end > position)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void sn_retransmit_acknowledge(sn_retransmit_cache *c, uint32_t number)
{
    const int64_t una = sn_position(c->iss, number, c->una);
    if (una <= c->una || una > last_range(c)->end + 1) /* the FIN has a number too */
        return;
    c->una = una;
    const uint32_t gone = index_after(c, una), removed = gone < c->count ? gone : c->count - 1;
    for (uint32_t i = 0; i < removed; i++)
        release(c, range_at(c, i));
    c->first += removed;
    c->count -= removed;
    if (range_at(c, 0)->end <= una)
        release(c, range_at(c, 0));
}

/* Has space for the ranges of one insertion. Returns -1 if there is no memory. */
static int reserve(sn_retransmit_cache *c)
{
    if (c->first + c->count + MOST_ADDED <= c->capacity)
        return 0;
    if (c->first < c->capacity / 2 || c->count + MOST_ADDED > c->capacity) {
        const uint32_t capacity = 2 * c->capacity;
        sn_cached_range *ranges = realloc(c->ranges, capacity * sizeof *ranges);
        if (ranges == NULL)
            return -1;
        c->ranges = ranges;
        c->capacity = capacity;
        return 0;
    }
    memmove(c->ranges, c->ranges + c->first, c->count * sizeof *c->ranges);
    c->first = 0;
    return 0;
}

/* Inserts ranges that are not empty before the one with this index. Returns their number. */
static uint32_t insert_ranges(sn_retransmit_cache *c, uint32_t index, const sn_cached_range *ranges, uint32_t number)
{
    uint32_t added = 0;
    for (uint32_t i = 0; i < number; i++)
        added += ranges[i].start < ranges[i].end;
    memmove(range_at(c, index + added), range_at(c, index), (c->count - index) * sizeof *ranges);
    for (uint32_t i = 0; i < number; i++)
        if (ranges[i].start < ranges[i].end)
            *range_at(c, index++) = ranges[i];
    c->count += added;
    return added;
}

/* Inserts coded bytes, and the exact ones around them. Returns how many ranges they added, -1: there is no memory. */
static int64_t insert_coded(sn_retransmit_cache *c, uint32_t index, const sn_cached_range *new, const uint8_t *payload)
{
    const int64_t first = least(new->end, new->start + modulo(new->origin - new->start, WORD));
    const int64_t last = most(first, new->end - modulo(new->end - new->origin, WORD));
    sn_cached_range parts[MOST_ADDED] = {*new, *new, *new};
    parts[0].end = parts[1].start = first;
    parts[1].end = parts[2].start = last;
    if (first < last) {
        const size_t length = (size_t)(last - first);
        if ((parts[1].cached = malloc(sizeof(sn_cached_bytes) + length)) == NULL)
            return -1;
        parts[1].cached->length = (uint32_t)length;
        memcpy(parts[1].cached->bytes, payload + (first - new->start), length);
    }
    return insert_ranges(c, index, parts, MOST_ADDED);
}

/* Inserts new bytes before the range with this index. Returns how many ranges they added, -1: there is no memory. */
static int64_t insert(sn_retransmit_cache *c, uint32_t index, const sn_cached_range *new, const uint8_t *payload)
{
    if (reserve(c))
        return -1;
    if (new->tos != SN_PLAIN_BYTES && new->origin != SN_UNKNOWN_ORIGIN)
        return insert_coded(c, index, new, payload);
    sn_cached_range *previous = index ? range_at(c, index - 1) : NULL;
    if (previous && previous->end == new->start && previous->tos == new->tos && previous->origin == new->origin &&
        previous->block == new->block && !previous->cached) {
        previous->end = new->end;
        return 0;
    }
    return insert_ranges(c, index, new, 1);
}

static void make_plain(sn_cached_range *new)
{
    new->tos = SN_PLAIN_BYTES;
    new->origin = SN_UNKNOWN_ORIGIN;
    new->block = 0;
}

/* Sets the tagged range of new bytes behind all that was seen. */
static void classify_new(const sn_retransmit_cache *c, const sn_tx_segment *segment, sn_cached_range *new)
{
    const sn_cached_range *last = last_range(c);
    make_plain(new);
    if (segment->tos == SN_PLAIN_BYTES)
        return;
    new->tos = segment->tos;
    new->block = segment->block;
    if (last->tos == segment->tos) {
        new->origin = last->origin;
        new->block = last->block;
    } else if (last->end == new->start || last->end == c->una) {
        new->origin = last->end; /* bytes missed before it belong to it: all others are acknowledged */
    }
}

/* Sets the tagged range of late bytes, in front of bytes seen before. */
static void classify_late(const sn_cached_range *following, sn_cached_range *new)
{
    make_plain(new);
    if (following->tos == SN_PLAIN_BYTES || following->origin == SN_UNKNOWN_ORIGIN || new->start < following->origin)
        return;
    new->tos = following->tos;
    new->origin = following->origin;
    new->block = following->block;
}

/* Classifies all bytes not seen before, of a segment whose payload begins at `start`. Returns -1 if there is no
   memory. */
static int add(sn_retransmit_cache *c, const sn_tx_segment *segment, int64_t start)
{
    const int64_t end = start + segment->length;
    uint32_t index = index_after(c, start);
    for (int64_t at = start; at < end;) {
        const sn_cached_range *following = index < c->count ? range_at(c, index) : NULL;
        if (following && following->start <= at) {
            at = following->end;
            index++;
            continue;
        }
        sn_cached_range new = {.start = at, .end = following ? least(end, following->start) : end};
        if (following)
            classify_late(following, &new);
        else
            classify_new(c, segment, &new);
        const int64_t added = insert(c, index, &new, segment->payload + (at - start));
        if (added < 0)
            return -1;
        index += (uint32_t)added;
        at = new.end;
    }
    return 0;
}

static int add_part(sn_tx_parts *parts, const sn_tx_part *part)
{
    if (parts->count == parts->capacity) {
        const uint32_t capacity = parts->capacity ? 2 * parts->capacity : LEAST_RANGES;
        sn_tx_part *items = realloc(parts->items, capacity * sizeof *items);
        if (items == NULL)
            return -1;
        parts->items = items;
        parts->capacity = capacity;
    }
    parts->items[parts->count++] = *part;
    return 0;
}

/* The part of a range that a segment needs: of its bytes from `first` to `last`. */
static sn_tx_part part_of(const sn_retransmit_cache *c, const sn_cached_range *range, int64_t first, int64_t last)
{
    sn_tx_part part = {.tos = range->tos, .coded = range->cached != NULL};
    if (part.coded) {
        first = most(range->start, first - modulo(first - range->origin, range->block));
        last = least(range->end, last + modulo(range->origin - last, range->block));
        part.payload = range->cached->bytes + (first - range->start);
        part.block_offset = (uint32_t)modulo(first - range->origin, SN_LONGEST_BLOCK);
    }
    part.seq = sn_number(c->iss, first);
    part.length = (uint32_t)(last - first);
    return part;
}

/* Lists the parts of a segment, one for each range it overlaps. Returns -1 if there is no memory. */
static int cut(const sn_retransmit_cache *c, const sn_tx_segment *segment, int64_t start, sn_tx_parts *parts)
{
    const int64_t end = start + segment->length;
    for (uint32_t index = index_after(c, start); index < c->count && range_at(c, index)->start < end; index++) {
        const sn_cached_range *range = range_at(c, index);
        const int64_t first = most(start, range->start);
        sn_tx_part part = part_of(c, range, first, least(end, range->end));
        if (!part.coded)
            part.payload = segment->payload + (first - start);
        if (add_part(parts, &part))
            return -1;
    }
    return 0;
}

int sn_retransmit_parts(sn_retransmit_cache *c, const sn_tx_segment *segment, sn_tx_parts *parts)
{
    sn_cached_range *last = last_range(c);
    const int64_t start = sn_position(c->iss, segment->seq, last->end), seen = most(start, c->una);
    parts->count = 0;
    c->is_lent = true;
    if (segment->tos == SN_PLAIN_BYTES && last->tos == SN_PLAIN_BYTES && last->end == start) { /* the common case */
        last->end = start + segment->length;
        const sn_tx_part whole = {segment->payload, segment->length, segment->seq, SN_PLAIN_BYTES, 0, false};
        return add_part(parts, &whole);
    }
    if (seen >= start + segment->length)
        return 0;
    sn_tx_segment rest = *segment;
    rest.payload += seen - start;
    rest.length -= (uint32_t)(seen - start);
    return add(c, &rest, seen) ? -1 : cut(c, &rest, seen, parts);
}
