/* Tags, cuts and runs of a send buffer: softnic/tcp/send_buffer.py and zerocopy.py say what the operations mean. */
#include "tcp/send_buffer.h"

#include <stdlib.h>
#include <string.h>

#include "tcp/array.h"

enum {
    WORD = 4,
    LEAST_REST = 64 << 10 /* of a run of which only the first bytes are copied */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Makes room for one tag range more. */
static int reserve_tag(sn_send_buffer *b)
{
    sn_tag_range *tags = sn_array_reserve(b->tags, sizeof *tags, &b->tags_first, b->tags_count, &b->tags_capacity, 1);
    if (tags == NULL)
        return -1;
    b->tags = tags;
    return 0;
}

static sn_tag_range *tag_at(const sn_send_buffer *b, int64_t index)
{
    return b->tags + b->tags_first + index;
}

static sn_send_run *run_at(const sn_send_buffer *b, int64_t index)
{
    return b->runs + b->runs_first + index;
}

/* Number of ranges that begin at `position` or before. */
static int64_t ranges_until(const sn_send_buffer *b, int64_t position)
{
    int64_t low = 0, high = b->tags_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (tag_at(b, middle)->start <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int sn_send_buffer_tag(sn_send_buffer *b, int64_t position, uint32_t tag, uint8_t tos, bool words,
                       uint16_t block, bool lossless)
{
    bool replaces = b->tags_count > 0 && tag_at(b, b->tags_count - 1)->start == position;
    if (!replaces && reserve_tag(b))
        return -1;
    b->tags_count += !replaces;
    *tag_at(b, b->tags_count - 1) = (sn_tag_range){
        .start = position, .origin = position, .tag = tag, .tos = tos, .words = words, .block = block, .lossless = lossless};
    return 0;
}

void sn_send_buffer_no_floats(sn_send_buffer *b)
{
    b->floats = false;
    for (int64_t index = 0; index < b->tags_count; index++)
        tag_at(b, index)->words = false;
}

const sn_tag_range *sn_send_buffer_tag_range(const sn_send_buffer *b, int64_t position)
{
    return tag_at(b, ranges_until(b, position) - 1);
}

const sn_tag_range *sn_send_buffer_last_range(const sn_send_buffer *b)
{
    return tag_at(b, b->tags_count - 1);
}

int64_t sn_tag_range_cut_before(const sn_tag_range *range, int64_t position, int64_t limit)
{
    return range->words ? larger(position, limit - (limit - range->origin) % range->block) : limit;
}

/* What is not cut where a range has no more bytes yet. */
static int64_t unit(const sn_send_buffer *b, const sn_tag_range *range)
{
    if (b->blocks)
        return range->block;
    return range->lossless ? 1 : WORD;
}

void sn_send_buffer_extent(const sn_send_buffer *b, int64_t position, bool flush, sn_extent *extent)
{
    int64_t next = ranges_until(b, position);
    const sn_tag_range *range = tag_at(b, next - 1);
    int64_t end = position < b->zerocopy_end ? sn_send_buffer_run_at(b, position)->end : b->end;
    *extent = (sn_extent){.range = *range, .end = end, .closed = true};
    if (next < b->tags_count && tag_at(b, next)->start <= end) {
        extent->end = tag_at(b, next)->start;
    } else if (end == b->end) {
        extent->closed = flush;
        if (!flush && range->words)
            extent->end = larger(position, end - (end - range->origin) % unit(b, range));
    }
}

int64_t sn_send_buffer_reach(const sn_send_buffer *b, int64_t position, int64_t limit, bool flush)
{
    sn_extent extent;
    sn_send_buffer_extent(b, position, flush, &extent);
    return extent.end <= limit ? extent.end : sn_tag_range_cut_before(&extent.range, position, limit);
}

bool sn_send_buffer_has_room(const sn_send_buffer *b)
{
    return sn_array_has_room(b->tags_first, b->tags_count, b->tags_capacity, 1);
}

int sn_send_buffer_cut_at(sn_send_buffer *b, int64_t position)
{
    int64_t next = ranges_until(b, position);
    const sn_tag_range *range = tag_at(b, next - 1);
    if (!range->words || range->start == position || (position - range->origin) % range->block == 0)
        return 0;
    if (reserve_tag(b))
        return -1;
    sn_tag_range cut = *tag_at(b, next - 1);
    cut.start = position;
    if ((position - range->origin) % WORD)
        cut.origin = position;
    memmove(tag_at(b, next + 1), tag_at(b, next), (size_t)(b->tags_count - next) * sizeof cut);
    *tag_at(b, next) = cut;
    b->tags_count++;
    return 0;
}

int64_t sn_send_buffer_segment_start(const sn_send_buffer *b, int64_t position)
{
    const sn_tag_range *range = sn_send_buffer_tag_range(b, position);
    return range->words ? larger(range->start, position - (position - range->origin) % range->block) : position;
}

int64_t sn_send_buffer_zerocopy_len(const sn_send_buffer *b, int64_t size)
{
    const sn_tag_range *range = sn_send_buffer_tag_range(b, b->end);
    if (!range->words)
        return size;
    return (b->end - range->origin) % range->block ? 0 : size - size % range->block;
}

int64_t sn_send_buffer_free(const sn_send_buffer *b)
{
    int64_t left = b->capacity - (b->end - b->start - b->outstanding);
    return left > 0 ? left : 0;
}

int64_t sn_send_buffer_space(sn_send_buffer *b)
{
    int64_t own = larger(b->start, b->zerocopy_end), left = sn_send_buffer_free(b);
    uint8_t *memory = (uint8_t *)(uintptr_t)b->memory_address;
    if (own == b->end) {
        b->origin = b->end;
    } else if (b->memory_size - (b->end - b->origin) < smaller(left, b->capacity / 4)) {
        memmove(memory, memory + (own - b->origin), (size_t)(b->end - own));
        b->origin = own;
    }
    return smaller(left, b->memory_size - (b->end - b->origin));
}

static void count_completed(sn_send_buffer *b, int64_t size)
{
    b->outstanding -= size;
    b->completed_bytes += size;
}

static void release_runs(sn_send_buffer *b, int64_t position)
{
    while (b->runs_count > 0 && run_at(b, 0)->start < position) {
        sn_send_run *run = run_at(b, 0);
        int64_t upto = smaller(position, run->end), size = upto - run->start;
        if (run->copy == NULL)
            count_completed(b, size);
        run->data += size;
        run->start = upto;
        if (upto == run->end) {
            free(run->copy);
            b->runs_first++;
            b->runs_count--;
        }
    }
}

void sn_send_buffer_release(sn_send_buffer *b, int64_t position)
{
    int64_t start = smaller(sn_send_buffer_segment_start(b, position), b->end);
    if (start <= b->start)
        return;
    b->start = start;
    release_runs(b, start);
    int64_t spare = ranges_until(b, start) - 1;
    b->tags_first += spare;
    b->tags_count -= spare;
}

const uint8_t *sn_send_buffer_data(const sn_send_buffer *b, int64_t position)
{
    if (position >= b->zerocopy_end)
        return (const uint8_t *)(uintptr_t)b->memory_address + (position - b->origin);
    const sn_send_run *run = sn_send_buffer_run_at(b, position);
    return run->data + (position - run->start);
}

/* Whether zero-copy bytes at `data` continue the last run. */
static bool joins(const sn_send_buffer *b, const uint8_t *data, uint64_t owner)
{
    if (b->runs_count == 0)
        return false;
    const sn_send_run *last = run_at(b, b->runs_count - 1);
    return last->copy == NULL && last->owner == owner && last->end == b->end &&
           last->data + (last->end - last->start) == data;
}

int sn_send_buffer_send_zerocopy(sn_send_buffer *b, const uint8_t *data, int64_t size, uint64_t owner)
{
    const int64_t own = larger(b->start, b->zerocopy_end), copied = b->end - own;
    uint8_t *copy = NULL;
    sn_send_run *runs = sn_array_reserve(b->runs, sizeof *runs, &b->runs_first, b->runs_count, &b->runs_capacity, 2);
    if (runs == NULL)
        return -1;
    b->runs = runs;
    if (copied) { /* the buffer's own bytes become a run: its memory is for what is written behind the new one */
        copy = malloc((size_t)copied);
        if (copy == NULL)
            return -1;
        memcpy(copy, (uint8_t *)(uintptr_t)b->memory_address + (own - b->origin), (size_t)copied);
        *run_at(b, b->runs_count++) = (sn_send_run){.start = own, .end = b->end, .data = copy, .copy = copy};
    }
    if (joins(b, data, owner))
        run_at(b, b->runs_count - 1)->end += size;
    else
        *run_at(b, b->runs_count++) =
            (sn_send_run){.start = b->end, .end = b->end + size, .data = data, .owner = owner};
    b->outstanding += size;
    b->end += size;
    b->zerocopy_end = b->origin = b->end;
    return 0;
}

/* How much of a run is copied if `count` bytes, or more, are to be: the rest stays zero-copy if it is worth a run. */
static int64_t part_to_copy(const sn_send_buffer *b, const sn_send_run *run, int64_t count)
{
    const int64_t size = run->end - run->start;
    if (size - count < LEAST_REST)
        return size;
    const sn_tag_range *range = sn_send_buffer_tag_range(b, run->start + count);
    const int64_t odd = range->words ? (run->start + count - range->origin) % range->block : 0;
    return odd ? count + range->block - odd : count;
}

/* Cuts a run into its first `size` bytes and the rest. */
static int split_run(sn_send_buffer *b, int64_t index, int64_t size)
{
    sn_send_run *runs = sn_array_reserve(b->runs, sizeof *runs, &b->runs_first, b->runs_count, &b->runs_capacity, 1);
    if (runs == NULL)
        return -1;
    b->runs = runs;
    sn_send_run *run = run_at(b, index);
    memmove(run + 1, run, (size_t)(b->runs_count - index) * sizeof *run);
    b->runs_count++;
    run[0].end = run[1].start = run->start + size;
    run[1].data += size;
    return 0;
}

int sn_send_buffer_copy_out(sn_send_buffer *b, int64_t count)
{
    for (int64_t index = 0; index < b->runs_count && count > 0; index++) {
        sn_send_run *run = run_at(b, index);
        if (run->copy)
            continue;
        const int64_t size = part_to_copy(b, run, count);
        uint8_t *copy = malloc((size_t)size);
        if (copy == NULL || (size < run->end - run->start && split_run(b, index, size))) {
            free(copy);
            return -1;
        }
        run = run_at(b, index);
        run->data = run->copy = memcpy(copy, run->data, (size_t)size);
        count_completed(b, size);
        b->copied_out += size;
        count -= size;
    }
    return 0;
}

sn_send_run *sn_send_buffer_run_at(const sn_send_buffer *b, int64_t position)
{
    for (int64_t index = 0; index < b->runs_count; index++)
        if (position < run_at(b, index)->end)
            return run_at(b, index);
    return NULL;
}

void sn_send_buffer_clear_runs(sn_send_buffer *b)
{
    for (int64_t index = 0; index < b->runs_count; index++)
        free(run_at(b, index)->copy);
    b->runs_first = b->runs_count = 0;
    b->outstanding = 0;
}
