#include "nic/emulated_late.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nic/frames.h"

enum { FIRST_LATE = 1 << 6, UNUSED_PARTS = 4 };

static bool resize(sn_emulated_link *link, uint64_t capacity)
{
    sn_emulated_late **late = realloc(link->late, capacity * sizeof *late);
    if (late == NULL)
        return false;
    link->late = late;
    link->late_capacity = capacity;
    return true;
}

static bool is_before(const sn_emulated_late *a, const sn_emulated_late *b)
{
    return a->due != b->due ? a->due < b->due : a->number < b->number;
}

/* Puts a frame at its place, from `at` on towards the top. */
static void move_up(sn_emulated_late **late, uint64_t at, sn_emulated_late *frame)
{
    for (; at && is_before(frame, late[(at - 1) / 2]); at = (at - 1) / 2)
        late[at] = late[(at - 1) / 2];
    late[at] = frame;
}

sn_emulated_late *sn_emulated_add_late(sn_emulated_link *link, const uint8_t *data, uint32_t length, double due)
{
    if (link->late_count == link->late_capacity && !resize(link, link->late ? 2 * link->late_capacity : FIRST_LATE))
        return NULL;
    sn_emulated_late *frame = malloc(sizeof *frame + SN_HEADROOM + length);
    if (frame == NULL)
        return NULL;
    *frame = (sn_emulated_late){.due = due, .number = ++link->late_number, .length = length};
    memcpy(frame->bytes + SN_HEADROOM, data, length);
    link->held_bytes += length;
    move_up(link->late, link->late_count++, frame);
    return frame;
}

void sn_emulated_remove_late(sn_emulated_link *link)
{
    sn_emulated_late **late = link->late, *last = late[--link->late_count];
    const uint64_t count = link->late_count;
    link->held_bytes -= late[0]->length;
    free(late[0]);
    uint64_t at = 0;
    for (uint64_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && is_before(late[child + 1], late[child]);
        if (!is_before(late[child], last))
            break;
        late[at] = late[child];
    }
    late[at] = last;
}

void sn_emulated_clear_late(sn_emulated_link *link)
{
    while (link->late_count)
        free(link->late[--link->late_count]);
    free(link->late);
    link->late = NULL;
    link->late_capacity = 0;
}

void sn_emulated_trim_late(sn_emulated_link *link)
{
    if (link->late_count == 0)
        sn_emulated_clear_late(link);
    else if (link->late_capacity > FIRST_LATE && link->late_count <= link->late_capacity / UNUSED_PARTS)
        resize(link, link->late_capacity / 2);
}

double sn_emulated_late_at(const sn_emulated_link *link)
{
    return link->late_count ? link->late[0]->due : INFINITY;
}
