/* The memory of an emulated link: rings of bytes, of the frames in them, and of the ends of busy periods. */
#include "nic/emulated_ring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nic/emulated_late.h"
#include "nic/frames.h"

enum { FIRST_SIZE = 1 << 16, FIRST_CAPACITY = 1 << 6 };
enum { UNUSED_PARTS = 4 }; /* memory of which no more than this part was in use is given back, ... */
static const double TRIM_S = 1.0; /* after this long */

sn_emulated_link *sn_emulated_new(void)
{
    sn_emulated_link *link = calloc(1, sizeof *link);
    if (link != NULL)
        link->free_at = link->busy_until = link->moderated_until = link->trim_at = link->chance.last_due = -INFINITY;
    return link;
}

void sn_emulated_clear(sn_emulated_link *link)
{
    free(link->bytes);
    free(link->frames);
    free(link->period_ends);
    link->bytes = NULL;
    link->frames = NULL;
    link->period_ends = NULL;
    link->size = link->tail = link->capacity = 0;
    link->most_bytes = link->most_frames = 0;
    link->first = link->end;
    link->held_bytes = 0;
    sn_emulated_clear_late(link);
}

void sn_emulated_free(sn_emulated_link *link)
{
    sn_emulated_clear(link);
    free(link->line);
    free(link);
}

/* Moves the list of frames to memory for `capacity` of them. */
static bool resize_frames(sn_emulated_link *link, uint64_t capacity)
{
    sn_emulated_frame *frames = malloc(capacity * sizeof *frames);
    double *ends = malloc(capacity * sizeof *ends);
    if (frames == NULL || ends == NULL) {
        free(frames);
        free(ends);
        return false;
    }
    for (uint64_t number = link->first; number != link->end; number++) {
        const sn_emulated_frame *frame = sn_emulated_frame_at(link, number);
        frames[number & (capacity - 1)] = *frame;
        ends[frame->period & (capacity - 1)] = *sn_emulated_period_end(link, frame->period);
    }
    free(link->frames);
    free(link->period_ends);
    link->frames = frames;
    link->period_ends = ends;
    link->capacity = capacity;
    return true;
}

/* Makes room for `more` frames. */
static bool reserve_frames(sn_emulated_link *link, uint64_t more)
{
    const uint64_t count = link->end - link->first + more;
    uint64_t capacity = link->capacity ? link->capacity : FIRST_CAPACITY;
    while (capacity < count)
        capacity *= 2;
    if (capacity != link->capacity && !resize_frames(link, capacity))
        return false;
    link->most_frames = count > link->most_frames ? count : link->most_frames;
    return true;
}

/* Moves the frames in flight to the front of a ring of `size` bytes. */
static bool resize_bytes(sn_emulated_link *link, uint64_t size)
{
    uint8_t *bytes = malloc(size);
    if (bytes == NULL)
        return false;
    link->tail = 0;
    for (uint64_t number = link->first; number != link->end; number++) {
        sn_emulated_frame *frame = sn_emulated_frame_at(link, number);
        memcpy(bytes + link->tail + SN_HEADROOM, link->bytes + frame->position, frame->length);
        frame->position = link->tail + SN_HEADROOM;
        link->tail = frame->position + frame->length;
    }
    free(link->bytes);
    link->bytes = bytes;
    link->size = size;
    return true;
}

/* Moves the frames in flight to the front of a ring with room for `more` bytes behind them. */
static bool enlarge(sn_emulated_link *link, uint64_t more)
{
    uint64_t least = more;
    for (uint64_t number = link->first; number != link->end; number++)
        least += SN_HEADROOM + sn_emulated_frame_at(link, number)->length;
    const uint64_t larger = link->size ? link->size + link->size / 2 : FIRST_SIZE;
    return resize_bytes(link, least > larger ? least : larger);
}

/* Returns the bytes of the ring from the first frame in flight to the last. */
static uint64_t span(const sn_emulated_link *link)
{
    if (sn_emulated_is_empty(link))
        return 0;
    const uint64_t head = sn_emulated_frame_at(link, link->first)->position - SN_HEADROOM;
    return link->tail > head ? link->tail - head : link->size - head + link->tail;
}

void sn_emulated_trim(sn_emulated_link *link, double now)
{
    const uint64_t size = 2 * link->most_bytes > FIRST_SIZE ? 2 * link->most_bytes : FIRST_SIZE;
    uint64_t capacity = FIRST_CAPACITY;
    while (capacity < 2 * link->most_frames)
        capacity *= 2;
    if (link->most_bytes <= link->size / UNUSED_PARTS && size < link->size)
        resize_bytes(link, size); /* without memory, it stays as it is */
    if (link->most_frames <= link->capacity / UNUSED_PARTS && capacity < link->capacity)
        resize_frames(link, capacity);
    sn_emulated_trim_late(link);
    link->most_bytes = span(link);
    link->most_frames = link->end - link->first;
    link->trim_at = now + TRIM_S;
}

/* Moves `tail` to where `more` bytes are free in one piece. */
static bool reserve_bytes(sn_emulated_link *link, uint64_t more)
{
    if (sn_emulated_is_empty(link)) {
        link->tail = 0; /* a short queue stays in the same, cached memory */
        return more <= link->size || enlarge(link, more);
    }
    const uint64_t head = sn_emulated_frame_at(link, link->first)->position - SN_HEADROOM;
    if (link->tail <= head)
        return more <= head - link->tail || enlarge(link, more);
    if (more <= link->size - link->tail)
        return true;
    if (more > head)
        return enlarge(link, more);
    link->tail = 0;
    return true;
}

bool sn_emulated_reserve(sn_emulated_link *link, const uint32_t *lengths, uint32_t count, uint32_t copies)
{
    const uint64_t bytes = copies * (sn_sum_lengths(lengths, count) + (uint64_t)count * SN_HEADROOM);
    if (!reserve_frames(link, (uint64_t)count * copies) || !reserve_bytes(link, bytes))
        return false;
    const uint64_t used = span(link) + bytes;
    link->most_bytes = used > link->most_bytes ? used : link->most_bytes;
    return true;
}
