#include "tcp/reassembly.h"

#include <stdlib.h>
#include <string.h>

#include "tcp/array.h"

enum {
    JOINED = 16 << 10, /* bytes of a chunk that is joined of small payloads, at most */
    OVERHEAD = 96      /* bytes that a chunk takes beside its own: its place in the array, and what an allocation adds */
};

sn_chunk *sn_reassembly_chunk(uint32_t size)
{
    sn_chunk *chunk = malloc(sizeof *chunk + size);
    if (chunk)
        *chunk = (sn_chunk){.size = size};
    return chunk;
}

static sn_waiting *at(const sn_reassembly *r, int64_t index)
{
    return r->waiting + r->first + index;
}

const sn_waiting *sn_reassembly_at(const sn_reassembly *r, int64_t index)
{
    return at(r, index);
}

static uint32_t length_of(const sn_chunk *chunk)
{
    return chunk->end - chunk->start;
}

static int64_t end_of(const sn_waiting *waiting)
{
    return waiting->start + length_of(waiting->chunk);
}

static int64_t cost_of(uint32_t size)
{
    return OVERHEAD + (int64_t)size;
}

/* Index of the first chunk that ends at `position` or behind. */
static int64_t find(const sn_reassembly *r, int64_t position)
{
    int64_t low = 0, high = r->count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (end_of(at(r, middle)) < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Start and end of the island, the contiguous run of chunks, that a chunk is of. */
static int64_t island_start(const sn_reassembly *r, int64_t index)
{
    while (index > 0 && end_of(at(r, index - 1)) == at(r, index)->start)
        index--;
    return at(r, index)->start;
}

static int64_t island_end(const sn_reassembly *r, int64_t index)
{
    while (index + 1 < r->count && end_of(at(r, index)) == at(r, index + 1)->start)
        index++;
    return end_of(at(r, index));
}

/* Whether two positions, the first of which is the lower one, are in one island. */
static bool are_joined(const sn_reassembly *r, int64_t low, int64_t high)
{
    const int64_t index = find(r, low + 1);
    return index < r->count && at(r, index)->start <= low && high < island_end(r, index);
}

/* Notes that bytes at `position`, which are kept, arrived last. An island is noted once, or one that grows would displace the
   others before an acknowledgement has reported them. */
static void note(sn_reassembly *r, int64_t position)
{
    int64_t others = 0;
    for (int64_t i = 0; i < r->recent_count; i++) {
        const int64_t each = r->recent[i];
        const bool is_delivered = each < at(r, 0)->start;
        if (!is_delivered && !(each < position ? are_joined(r, each, position) : are_joined(r, position, each)))
            r->recent[others++] = each;
    }
    if (others == SN_MOST_ISLANDS)
        memmove(r->recent, r->recent + 1, (size_t)--others * sizeof *r->recent);
    r->recent[others++] = position;
    r->recent_count = others;
}

void sn_reassembly_note_repeated(sn_reassembly *r, int64_t start, int64_t end)
{
    r->repeated_start = start;
    r->repeated_end = end;
    r->has_repeated = true;
}

/* Sets the cost, which is less than before or was found to be within the budget. */
static void charge(sn_reassembly *r, int64_t cost, int64_t paid)
{
    const int64_t charge = cost > paid ? cost - paid : 0;
    r->budget->free -= charge - r->charge;
    r->budget->held += charge - r->charge;
    r->charge = charge;
    r->cost = cost;
    r->paid = paid;
}

/* What becomes of bytes that arrive: they take the place of chunks [first, after), of which the first one is `before`, and the
   last one `behind`, if these are joined with them. */
typedef struct {
    int64_t low;
    int64_t high;
    int64_t first;
    int64_t after;
    bool before;
    bool behind;
    bool in_place; /* they fit into the memory of `before` */
    uint32_t size; /* of the chunk's memory then */
} plan;

static plan plan_for(const sn_reassembly *r, int64_t low, int64_t high, uint32_t memory)
{
    plan p = {.low = low, .high = high, .first = find(r, low + 1), .size = memory};
    int64_t size = high - low;
    for (p.after = p.first; p.after < r->count && at(r, p.after)->start < high; p.after++)
        ;
    const sn_chunk *target = NULL;
    if (p.first > 0 && end_of(at(r, p.first - 1)) == low) {
        target = at(r, p.first - 1)->chunk;
        p.before = size + length_of(target) <= JOINED;
    }
    if (p.before) {
        p.first--;
        size += length_of(target);
    }
    if (p.after < r->count && at(r, p.after)->start == high)
        p.behind = size + length_of(at(r, p.after)->chunk) <= JOINED;
    if (p.behind)
        size += length_of(at(r, p.after++)->chunk);
    p.in_place = p.before && target->start + size <= target->size;
    if (p.in_place)
        p.size = target->size;
    else if (p.before || p.behind)
        p.size = (uint32_t)(2 * size < JOINED ? 2 * size : JOINED);
    return p;
}

static void append(sn_chunk *chunk, const uint8_t *data, uint32_t size)
{
    memcpy(chunk->data + chunk->end, data, size);
    chunk->end += size;
}

/* Joins a chunk with its neighbours, as planned. Returns the whole, or NULL if there is no memory. */
static sn_chunk *join(const sn_reassembly *r, const plan *p, const sn_chunk *chunk)
{
    sn_chunk *before = p->before ? at(r, p->first)->chunk : NULL, *whole = before;
    if (!p->in_place) {
        whole = sn_reassembly_chunk(p->size);
        if (whole == NULL)
            return NULL;
        if (before)
            append(whole, before->data + before->start, length_of(before));
    }
    append(whole, chunk->data + chunk->start, length_of(chunk));
    if (p->behind) {
        const sn_chunk *behind = at(r, p->after - 1)->chunk;
        append(whole, behind->data + behind->start, length_of(behind));
    }
    return whole;
}

/* Puts a chunk with the bytes [low, high) in the place of what lies there. Returns as sn_reassembly_keep. */
static int64_t put(sn_reassembly *r, int64_t low, int64_t high, sn_chunk *chunk, int64_t paid)
{
    const plan p = plan_for(r, low, high, chunk->size);
    int64_t cost = r->cost + cost_of(p.size);
    uint32_t segments = 1;
    for (int64_t i = p.first; i < p.after; i++)
        cost -= cost_of(at(r, i)->chunk->size);
    if (r->count - (p.after - p.first) >= r->most)
        return -1;
    if (cost - paid - r->charge > r->budget->free)
        return cost - paid;
    sn_waiting *waiting =
        sn_array_reserve(r->waiting, sizeof *waiting, &r->first, r->count, &r->capacity, 1);
    if (waiting == NULL)
        return -1;
    r->waiting = waiting;
    const bool joins = p.before || p.behind;
    const uint32_t there = p.in_place ? length_of(at(r, p.first)->chunk) : 0;
    sn_chunk *whole = joins ? join(r, &p, chunk) : chunk;
    if (whole == NULL)
        return -1;
    if (joins)
        sn_chunk_free(chunk);
    const int64_t start = p.before ? at(r, p.first)->start : low;
    if (p.before)
        segments += at(r, p.first)->segments;
    if (p.behind)
        segments += at(r, p.after - 1)->segments;
    r->size += length_of(whole) - there;
    for (int64_t i = p.first; i < p.after; i++) {
        if (at(r, i)->chunk == whole)
            continue;
        r->size -= length_of(at(r, i)->chunk);
        sn_chunk_free(at(r, i)->chunk);
    }
    memmove(at(r, p.first + 1), at(r, p.after), (size_t)(r->count - p.after) * sizeof *waiting);
    r->count += 1 - (p.after - p.first);
    *at(r, p.first) = (sn_waiting){start, whole, segments};
    charge(r, cost, paid);
    return 0;
}

int64_t sn_reassembly_keep(sn_reassembly *r, int64_t position, sn_chunk *chunk, int64_t paid)
{
    const int64_t end = position + length_of(chunk), first = find(r, position), last = find(r, end + 1);
    int64_t low = position, high = end;
    if (first < r->count && at(r, first)->start <= position) {
        low = island_end(r, first);
        if (low >= end) {
            sn_reassembly_note_repeated(r, position, end);
            note(r, position);
            sn_chunk_free(chunk);
            return 0;
        }
    }
    if (last < r->count && at(r, last)->start <= end) { /* an island reaches behind these bytes */
        const int64_t start = island_start(r, last);
        high = start > low ? start : low;
        if (high > end)
            high = end;
    }
    const uint32_t chunk_start = chunk->start, chunk_end = chunk->end;
    chunk->start += (uint32_t)(low - position);
    chunk->end -= (uint32_t)(end - high);
    const int64_t failed = put(r, low, high, chunk, paid);
    if (failed) {
        chunk->start = chunk_start;
        chunk->end = chunk_end;
        return failed;
    }
    r->has_gap = true;
    note(r, position);
    return 0;
}

bool sn_reassembly_has_room(const sn_reassembly *r, uint32_t size)
{
    return r->count < r->most && cost_of(size) + JOINED <= r->budget->free;
}

int64_t sn_reassembly_take(sn_reassembly *r, int64_t position)
{
    const int64_t before = position;
    int64_t taken = 0, cost = r->cost;
    while (taken < r->count && at(r, taken)->start <= position) {
        const sn_waiting *waiting = at(r, taken++);
        sn_chunk *chunk = waiting->chunk;
        const int64_t end = end_of(waiting);
        cost -= cost_of(chunk->size);
        r->size -= length_of(chunk);
        if (end <= position) {
            sn_chunk_free(chunk);
            continue;
        }
        chunk->start += (uint32_t)(position - waiting->start);
        sn_receive_buffer_add(&r->ready, chunk);
        position = end;
    }
    r->first += taken;
    r->count -= taken;
    r->has_gap = r->count > 0;
    charge(r, cost, r->paid);
    return position - before;
}

void sn_reassembly_deliver(sn_reassembly *r, sn_receive_buffer *buffer)
{
    while (r->ready.first) {
        sn_chunk *chunk = r->ready.first;
        r->ready.first = chunk->next;
        sn_receive_buffer_add(buffer, chunk);
    }
    r->ready = (sn_receive_buffer){0};
}

uint32_t sn_reassembly_report(sn_reassembly *r, int64_t *blocks)
{
    uint32_t count = 0;
    if (r->has_repeated) {
        blocks[0] = r->repeated_start;
        blocks[1] = r->repeated_end;
        r->has_repeated = false;
        count = 1;
    }
    const uint32_t islands = count;
    for (int64_t i = r->recent_count; i > 0; i--) {
        const int64_t index = find(r, r->recent[i - 1] + 1);
        if (index == r->count || at(r, index)->start > r->recent[i - 1])
            continue;
        const int64_t start = island_start(r, index);
        bool known = false;
        for (uint32_t block = islands; block < count; block++)
            known = known || blocks[2 * block] == start;
        if (known)
            continue;
        blocks[2 * count] = start;
        blocks[2 * count + 1] = island_end(r, index);
        count++;
    }
    return count;
}

int64_t sn_reassembly_clear(sn_reassembly *r)
{
    int64_t segments = 0;
    for (int64_t i = 0; i < r->count; i++) {
        segments += at(r, i)->segments;
        sn_chunk_free(at(r, i)->chunk);
    }
    free(r->waiting);
    r->waiting = NULL;
    r->first = r->count = r->capacity = r->recent_count = r->size = 0;
    r->has_gap = false;
    charge(r, 0, 0);
    return segments;
}

void sn_reassembly_free(sn_reassembly *r)
{
    for (int64_t i = 0; i < r->count; i++)
        sn_chunk_free(at(r, i)->chunk);
    free(r->waiting);
    sn_receive_buffer_clear(&r->ready);
}
