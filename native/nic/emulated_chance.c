/* Numbers are drawn for whole batches: each decision for all of its frames, before the next decision. */
#include "nic/emulated_chance.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MOST_BYTES = UINT32_MAX / 8 }; /* of a frame in which any bit may be flipped */

int sn_emulated_is_random(const sn_emulated_chance *c)
{
    return c->jitter_s > 0 || c->loss > 0 || c->duplicate > 0 || c->reorder > 0 || c->corrupt > 0;
}

double sn_emulated_draw_delay(sn_emulated_chance *c, double delay_s)
{
    if (c->jitter_s <= 0)
        return delay_s;
    return fmax(0.0, delay_s + (2 * sn_pcg64_fraction(&c->generator) - 1) * c->jitter_s);
}

/* Keeps the order of batches although their delays differ: a frame waits for those before it. */
static void keep_order(sn_emulated_chance *c, sn_emulated_arrival *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        list[i].due = fmax(list[i].due, c->last_due);
    c->last_due = list[count - 1].due;
}

/* Chooses frames with a probability. Returns how many. */
static uint32_t choose(sn_emulated_chance *c, double probability, sn_emulated_arrival *list, uint32_t count)
{
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < count; i++) {
        list[i].chosen = sn_pcg64_fraction(&c->generator) < probability;
        chosen += list[i].chosen;
    }
    return chosen;
}

static uint32_t lose(sn_emulated_chance *c, sn_emulated_arrival *list, uint32_t count)
{
    const uint32_t lost = choose(c, c->loss, list, count);
    if (lost == 0)
        return count;
    c->lost += lost;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!list[i].chosen)
            list[kept++] = list[i];
    return kept;
}

static uint32_t duplicate(sn_emulated_chance *c, sn_emulated_arrival *list, uint32_t count)
{
    const uint32_t doubled = choose(c, c->duplicate, list, count);
    c->duplicated += doubled;
    uint32_t to = count + doubled;
    for (uint32_t i = count; to > i; i--) {
        list[--to] = list[i - 1];
        if (list[to].chosen) {
            --to;
            list[to] = list[i - 1];
        }
    }
    return count + doubled;
}

/* Orders frames by time; those of equal times keep their order. */
static int compare(const void *left, const void *right)
{
    const sn_emulated_arrival *a = left, *b = right;
    if (a->due != b->due)
        return a->due < b->due ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* Delays some frames. Returns how many are not later than the last one was. */
static uint32_t reorder(sn_emulated_chance *c, double byte_s, const uint32_t *lengths, sn_emulated_arrival *list,
                        uint32_t count)
{
    const uint32_t late = choose(c, c->reorder, list, count);
    if (late == 0)
        return count;
    c->reordered += late;
    const double last = list[count - 1].due;
    for (uint32_t i = 0; i < count; i++) {
        list[i].place = i;
        if (list[i].chosen) {
            const double frame_s = byte_s > 0 ? lengths[list[i].index] * byte_s : c->unrated_frame_s;
            list[i].due += (1 + sn_pcg64_below(&c->generator, SN_MAX_LATE_FRAMES)) * frame_s;
        }
    }
    qsort(list, count, sizeof *list, compare);
    uint32_t on_time = count;
    while (on_time && list[on_time - 1].due > last)
        on_time--;
    return on_time;
}

static void corrupt(sn_emulated_chance *c, const uint32_t *lengths, sn_emulated_arrival *list, uint32_t count)
{
    const bool any = choose(c, c->corrupt, list, count) > 0;
    for (uint32_t i = 0; any && i < count; i++) {
        const uint32_t length = lengths[list[i].index];
        list[i].corrupt = list[i].chosen;
        if (list[i].corrupt && length) {
            list[i].bit = sn_pcg64_below(&c->generator, 8 * (length < MOST_BYTES ? length : MOST_BYTES));
            c->corrupted++;
        }
    }
}

uint32_t sn_emulated_decide(sn_emulated_chance *c, double byte_s, const uint32_t *lengths, sn_emulated_arrival *list,
                            uint32_t count, uint32_t *on_time)
{
    if (c->jitter_s > 0 && count)
        keep_order(c, list, count);
    if (c->loss > 0)
        count = lose(c, list, count);
    if (c->duplicate > 0)
        count = duplicate(c, list, count);
    *on_time = c->reorder > 0 && count ? reorder(c, byte_s, lengths, list, count) : count;
    if (c->corrupt > 0) {
        corrupt(c, lengths, list + *on_time, count - *on_time);
        corrupt(c, lengths, list, *on_time);
    }
    return count;
}
