#include "nic/emulated_link.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nic/emulated_late.h"
#include "nic/emulated_line.h"
#include "nic/emulated_ring.h"
#include "nic/frames.h"

enum { ADDRESS = 6, PUSH_FRAMES = 512 };

static const double MOST_BYTES = 0x1p62;

/* --- the ring */

/* Returns the number in `period_ends` of the current busy period, whose end it sets. */
static uint64_t current_period(sn_emulated_link *link)
{
    if (link->last_busy != link->busy_period) {
        link->last_busy = link->busy_period;
        link->period++;
    }
    *sn_emulated_period_end(link, link->period) = link->busy_until;
    return link->period;
}

static void append(sn_emulated_link *link, const uint8_t *data, uint32_t length, sn_emulated_frame frame)
{
    frame.position = link->tail + SN_HEADROOM;
    frame.length = length;
    memcpy(link->bytes + frame.position, data, length);
    link->tail = frame.position + length;
    link->held_bytes += length;
    *sn_emulated_frame_at(link, link->end++) = frame;
}

/* Removes the first frame of the ring. */
static void remove_first(sn_emulated_link *link)
{
    link->held_bytes -= sn_emulated_frame_at(link, link->first++)->length;
}

/* --- the bottleneck */

/* Returns the bytes of the limit in use. */
static int64_t occupied(sn_emulated_link *link, double now)
{
    if (link->byte_s <= 0)
        return link->held_bytes;
    if (link->line)
        return sn_emulated_line_waiting(link->line, now);
    const double bytes = rint(fmax(0.0, link->free_at - now) / link->byte_s);
    return (int64_t)(bytes < MOST_BYTES ? bytes : MOST_BYTES);
}

/* When `bytes` have passed the bottleneck that start at a time. */
static double passed_at(const sn_emulated_link *link, uint64_t bytes, double start)
{
    return (double)bytes * link->byte_s + start;
}

/* Takes the bottleneck for the frames of a batch, when those before it have passed. Returns when they start. */
static double pass(sn_emulated_link *link, const uint32_t *lengths, uint32_t count, double now)
{
    const uint64_t bytes = sn_sum_lengths(lengths, count);
    double free_at = link->free_at, start, end;
    if (link->shared_free_at)
        __atomic_load(link->shared_free_at, &free_at, __ATOMIC_RELAXED);
    do {
        start = fmax(free_at, now);
        end = passed_at(link, bytes, start);
    } while (link->shared_free_at && !__atomic_compare_exchange(link->shared_free_at, &free_at, &end, false,
                                                                __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (link->line)
        sn_emulated_line_add(link->line, end, (int64_t)bytes);
    link->busy_period += free_at < now; /* a new one after a pause */
    link->free_at = end;
    link->busy_until = end + link->delay_s;
    if (link->last_busy == link->busy_period && link->capacity)
        *sn_emulated_period_end(link, link->period) = link->busy_until;
    return start;
}

/* Returns how many of the frames fit into the queue. */
static uint32_t fitting(sn_emulated_link *link, const uint32_t *lengths, uint32_t count, double now)
{
    const int64_t space = link->limit - occupied(link, now);
    int64_t bytes = 0;
    uint32_t fit = 0;
    while (fit < count && (bytes += lengths[fit]) <= space)
        fit++;
    return fit;
}

/* --- batches */

typedef struct {
    const uint8_t *data;
    const uint32_t *offsets;
    const uint32_t *lengths;
    uint32_t count;
    uint64_t packet_id;
} batch;

static sn_emulated_frame frame_of(sn_emulated_link *link, const batch *b, double earliest)
{
    return (sn_emulated_frame){.earliest = earliest, .packet_id = b->packet_id, .batch = ++link->batch,
                               .period = current_period(link)};
}

/* Schedules the frames of a batch to which nothing happens by chance. */
static void enter(sn_emulated_link *link, const batch *b, double now)
{
    const double start = pass(link, b->lengths, b->count, now);
    sn_emulated_frame frame = frame_of(link, b, now + link->delay_s);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        bytes += b->lengths[i];
        frame.due = passed_at(link, bytes, start) + link->delay_s;
        append(link, b->data + b->offsets[i], b->lengths[i], frame);
    }
}

/* Sends a batch through the bottleneck and computes when each frame arrives at the far end, `delay_s` later. */
static void serialize(sn_emulated_link *link, const batch *b, double delay_s, double now, sn_emulated_arrival *list)
{
    const double start = pass(link, b->lengths, b->count, now);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        bytes += b->lengths[i];
        list[i] = (sn_emulated_arrival){.due = passed_at(link, bytes, start) + delay_s, .index = i};
    }
}

static void flip(uint8_t *frame, uint32_t length, const sn_emulated_arrival *arrival)
{
    if (arrival->corrupt && length)
        frame[arrival->bit / 8] ^= (uint8_t)(1 << arrival->bit % 8);
}

/* Queues frames in order of time, each corrupted one as a batch of its own. */
static void put(sn_emulated_link *link, const batch *b, const sn_emulated_arrival *list, uint32_t count,
                double earliest)
{
    sn_emulated_frame frame = {0};
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t length = b->lengths[list[i].index];
        if (i == 0 || list[i].corrupt || list[i - 1].corrupt)
            frame = frame_of(link, b, earliest);
        frame.due = list[i].due;
        append(link, b->data + b->offsets[list[i].index], length, frame);
        flip(link->bytes + link->tail - length, length, &list[i]);
    }
}

/* Keeps late frames. One for which there is no memory is dropped. */
static void put_late(sn_emulated_link *link, const batch *b, const sn_emulated_arrival *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t length = b->lengths[list[i].index];
        sn_emulated_late *late =
            sn_emulated_add_late(link, b->data + b->offsets[list[i].index], length, list[i].due);
        if (late == NULL) {
            link->sent--;
            link->dropped_full++;
            continue;
        }
        late->packet_id = b->packet_id;
        flip(late->bytes + SN_HEADROOM, length, &list[i]);
    }
}

/* Decides what happens to the frames of a batch and schedules them. */
static void enter_by_chance(sn_emulated_link *link, const batch *b, sn_emulated_arrival *list, double now)
{
    const double delay_s = sn_emulated_draw_delay(&link->chance, link->delay_s);
    serialize(link, b, delay_s, now, list);
    uint32_t on_time;
    const uint32_t count = sn_emulated_decide(&link->chance, link->byte_s, b->lengths, list, b->count, &on_time);
    put_late(link, b, list + on_time, count - on_time);
    put(link, b, list, on_time, now + delay_s);
}

int sn_emulated_share(sn_emulated_link *link, double *free_at)
{
    link->line = calloc(1, sizeof *link->line);
    link->shared_free_at = link->line ? free_at : NULL;
    return link->line ? 0 : -1;
}

uint32_t sn_emulated_send(sn_emulated_link *link, const uint8_t *data, const uint32_t *offsets,
                          const uint32_t *lengths, uint32_t count, uint64_t packet_id, double now)
{
    batch b = {data, offsets, lengths, fitting(link, lengths, count, now), packet_id};
    const uint32_t copies = link->chance.duplicate > 0 ? 2 : 1;
    const bool is_random = b.count && sn_emulated_is_random(&link->chance);
    sn_emulated_arrival *list = is_random ? malloc((size_t)b.count * copies * sizeof *list) : NULL;
    if (b.count && ((is_random && list == NULL) || !sn_emulated_reserve(link, lengths, b.count, copies)))
        b.count = 0;
    link->sent += b.count;
    link->dropped_full += count - b.count;
    if (b.count && is_random)
        enter_by_chance(link, &b, list, now);
    else if (b.count)
        enter(link, &b, now);
    free(list);
    return b.count;
}

/* --- bursts */

/* Returns when the first frame is due; infinity: there is none. */
static double first_due(const sn_emulated_link *link)
{
    const double late_at = sn_emulated_late_at(link);
    return sn_emulated_is_empty(link) ? late_at : fmin(sn_emulated_frame_at(link, link->first)->due, late_at);
}

int sn_emulated_begins_burst(sn_emulated_link *link, double now)
{
    if (now >= link->trim_at)
        sn_emulated_trim(link, now);
    if (now < link->moderated_until || first_due(link) > now + link->together_s)
        return 0;
    link->moderated_until = now + link->coalesce_s;
    link->burst_until = -INFINITY;
    return 1;
}

/* Returns until when frames that leave now are due. The backlog of an earlier busy period does not count. */
static double burst_end(const sn_emulated_link *link, double now)
{
    double backlog_s = 0.0;
    if (!sn_emulated_is_empty(link))
        backlog_s = *sn_emulated_period_end(link, sn_emulated_frame_at(link, link->first)->period) - now;
    return now + fmin(link->ahead_s, fmax(link->together_s, link->backlog_part * backlog_s));
}

/* Returns until when the frames of the ring are due that leave next: those before the first late frame, and once all late
   ones that are due have left, those of the burst. */
static double leaves_until(sn_emulated_link *link, double now)
{
    const double late_at = sn_emulated_late_at(link);
    if (late_at <= now)
        return late_at;
    if (isinf(link->burst_until))
        link->burst_until = burst_end(link, now);
    return fmin(link->burst_until, late_at);
}

static bool same_destination(const sn_emulated_link *link, const sn_emulated_frame *a, const sn_emulated_frame *b)
{
    return a->length >= ADDRESS && b->length >= ADDRESS
        && memcmp(link->bytes + a->position, link->bytes + b->position, ADDRESS) == 0;
}

static void set_destination(sn_emulated_link *link, const uint8_t *frame, uint32_t length)
{
    memset(link->destination, 0, ADDRESS);
    memcpy(link->destination, frame, length < ADDRESS ? length : ADDRESS);
}

/* Returns how many of the first frames of the ring may leave and are due by `until`. */
static uint32_t count_line(sn_emulated_link *link, double until, double now, bool across)
{
    const uint64_t most = link->end - link->first < UINT32_MAX ? link->end - link->first : UINT32_MAX;
    if (most == 0)
        return 0;
    const sn_emulated_frame *head = sn_emulated_frame_at(link, link->first);
    uint64_t batch = head->batch;
    uint32_t count = 0;
    for (; count < most; count++) {
        const sn_emulated_frame *frame = sn_emulated_frame_at(link, link->first + count);
        if (frame->earliest > now || frame->due > until)
            break;
        if (frame->batch != batch) {
            if (!across || !same_destination(link, head, frame))
                break;
            batch = frame->batch;
        }
        link->burst_bytes += frame->length;
    }
    link->packet_id = head->packet_id;
    set_destination(link, link->bytes + head->position, head->length);
    return count;
}

uint32_t sn_emulated_burst(sn_emulated_link *link, double now, int across)
{
    link->burst_bytes = 0;
    const uint32_t count = count_line(link, leaves_until(link, now), now, across != 0);
    link->is_late = count == 0 && sn_emulated_late_at(link) <= now;
    if (!link->is_late)
        return count;
    const sn_emulated_late *late = link->late[0];
    link->burst_bytes = late->length;
    link->packet_id = late->packet_id;
    set_destination(link, late->bytes + SN_HEADROOM, late->length);
    return 1;
}

static void take_late(sn_emulated_link *link, uint8_t *out, uint32_t *offset, uint32_t *length)
{
    const sn_emulated_late *late = link->late[0];
    memcpy(out + SN_HEADROOM, late->bytes + SN_HEADROOM, late->length);
    *offset = SN_HEADROOM;
    *length = late->length;
    sn_emulated_remove_late(link);
}

void sn_emulated_take(sn_emulated_link *link, uint32_t count, uint8_t *out, uint32_t *offsets, uint32_t *lengths)
{
    uint64_t used = 0;
    if (link->is_late)
        return take_late(link, out, offsets, lengths);
    for (uint32_t i = 0; i < count; i++) {
        const sn_emulated_frame *frame = sn_emulated_frame_at(link, link->first);
        used += SN_HEADROOM;
        memcpy(out + used, link->bytes + frame->position, frame->length);
        offsets[i] = (uint32_t)used;
        lengths[i] = frame->length;
        used += frame->length;
        remove_first(link);
    }
}

/* Lists the first frames up to the end of the ring, at most `count` and PUSH_FRAMES. Returns their number. */
static uint32_t list_frames(const sn_emulated_link *link, uint32_t count, uint32_t *offsets, uint32_t *lengths)
{
    const uint64_t origin = sn_emulated_frame_at(link, link->first)->position - SN_HEADROOM;
    uint32_t listed = 0;
    for (; listed < count && listed < PUSH_FRAMES; listed++) {
        const sn_emulated_frame *frame = sn_emulated_frame_at(link, link->first + listed);
        if (frame->position < origin || frame->position - origin > UINT32_MAX)
            break;
        offsets[listed] = (uint32_t)(frame->position - origin);
        lengths[listed] = frame->length;
    }
    return listed;
}

static int64_t push_late(sn_emulated_link *link, sn_frames_sender send, const void *context)
{
    sn_emulated_late *late = link->late[0];
    const uint32_t offset = SN_HEADROOM;
    const int accepted = send(context, late->bytes, &offset, &late->length, 1);
    if (accepted > 0) {
        link->burst_bytes = late->length;
        sn_emulated_remove_late(link);
    }
    return accepted;
}

int64_t sn_emulated_push_with(sn_emulated_link *link, uint32_t count, sn_frames_sender send, const void *context)
{
    uint32_t offsets[PUSH_FRAMES], lengths[PUSH_FRAMES], pushed = 0;
    link->burst_bytes = 0;
    if (link->is_late)
        return push_late(link, send, context);
    while (pushed < count) {
        const uint32_t listed = list_frames(link, count - pushed, offsets, lengths);
        uint8_t *from = link->bytes + sn_emulated_frame_at(link, link->first)->position - SN_HEADROOM;
        const int accepted = send(context, from, offsets, lengths, listed);
        if (accepted < 0)
            return pushed ? (int64_t)pushed : accepted;
        for (int i = 0; i < accepted; i++) {
            link->burst_bytes += lengths[i];
            remove_first(link);
        }
        pushed += (uint32_t)accepted;
        if ((uint32_t)accepted < listed)
            break;
    }
    return pushed;
}

/* Arguments of sn_vxlan_send. */
typedef struct {
    int fd, gso;
    const sn_endpoint *to;
    uint32_t vni;
} vxlan_path;

static int send_vxlan(const void *context, uint8_t *data, const uint32_t *offsets, const uint32_t *lengths,
                      uint32_t count)
{
    const vxlan_path *path = context;
    return sn_vxlan_send(path->fd, path->to, path->vni, data, offsets, lengths, count, path->gso);
}

int64_t sn_emulated_push(sn_emulated_link *link, uint32_t count, int fd, const sn_endpoint *to, uint32_t vni, int gso)
{
    const vxlan_path path = {fd, gso, to, vni};
    return sn_emulated_push_with(link, count, send_vxlan, &path);
}

/* --- flow control */

/* Returns when the bottleneck's queue will be short enough to let the sender continue. */
static double resume_at(const sn_emulated_link *link)
{
    if (link->line)
        return sn_emulated_line_falls_to(link->line, link->low);
    return link->free_at - (double)link->low * link->byte_s;
}

static bool has_drained(const sn_emulated_link *link, double now)
{
    return link->byte_s > 0 ? now >= resume_at(link) : link->held_bytes <= link->low;
}

int64_t sn_emulated_tx_space(sn_emulated_link *link, double now)
{
    if (link->blocked && !has_drained(link, now))
        return 0;
    const int64_t space = link->high - occupied(link, now);
    link->blocked = space < link->least_space;
    return link->blocked ? 0 : space;
}

void sn_emulated_unblock(sn_emulated_link *link, double now)
{
    if (link->blocked && has_drained(link, now))
        link->blocked = 0;
}

double sn_emulated_next_time(const sn_emulated_link *link)
{
    double at = first_due(link);
    if (!isinf(at))
        at = fmax(at, link->moderated_until);
    return link->blocked && link->byte_s > 0 ? fmin(at, resume_at(link)) : at;
}
