#include "emulated_link.h"

#include <math.h>
#include <string.h>

#include "batch_io.h"
#include "emulated_ring.h"
#include "frames.h"

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

void sn_emulated_put(sn_emulated_link *link, const uint8_t *data, const uint32_t *offsets, const uint32_t *lengths,
                     const double *due, uint32_t count, double earliest, uint64_t packet_id)
{
    sn_emulated_frame frame = {.earliest = earliest, .packet_id = packet_id, .batch = ++link->batch};
    frame.period = current_period(link);
    for (uint32_t i = 0; i < count; i++) {
        frame.due = due[i];
        append(link, data + offsets[i], lengths[i], frame);
    }
}

/* Removes the first frame. */
static void remove_first(sn_emulated_link *link)
{
    link->held_bytes -= sn_emulated_frame_at(link, link->first++)->length;
}

/* --- the bottleneck */

/* Returns the bytes of the limit in use. */
static int64_t occupied(const sn_emulated_link *link, double now)
{
    if (link->byte_s <= 0)
        return link->held_bytes;
    const double bytes = rint(fmax(0.0, link->free_at - now) / link->byte_s);
    return (int64_t)(bytes < MOST_BYTES ? bytes : MOST_BYTES);
}

/* Returns when the next frame starts through the bottleneck: a new busy period after a pause. */
static double next_start(sn_emulated_link *link, double now)
{
    link->busy_period += link->free_at < now;
    return fmax(link->free_at, now);
}

static void set_busy(sn_emulated_link *link, double free_at)
{
    link->free_at = free_at;
    link->busy_until = free_at + link->delay_s;
    if (link->last_busy == link->busy_period && link->capacity)
        *sn_emulated_period_end(link, link->period) = link->busy_until;
}

uint32_t sn_emulated_admit(sn_emulated_link *link, const uint32_t *lengths, uint32_t count, uint32_t copies,
                           double now)
{
    const int64_t space = link->limit - occupied(link, now);
    int64_t bytes = 0;
    uint32_t accepted = 0;
    while (accepted < count && (bytes += lengths[accepted]) <= space)
        accepted++;
    if (accepted && !sn_emulated_reserve(link, lengths, accepted, copies))
        accepted = 0;
    link->sent += accepted;
    link->dropped_full += count - accepted;
    return accepted;
}

void sn_emulated_serialize(sn_emulated_link *link, const uint32_t *lengths, uint32_t count, double delay_s, double now,
                           double *due)
{
    const double start = next_start(link, now);
    double passed = start;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += lengths[i];
        passed = (double)bytes * link->byte_s + start;
        due[i] = passed + delay_s;
    }
    set_busy(link, passed);
}

uint32_t sn_emulated_send(sn_emulated_link *link, const uint8_t *data, const uint32_t *offsets,
                          const uint32_t *lengths, uint32_t count, uint64_t packet_id, double now)
{
    const uint32_t accepted = sn_emulated_admit(link, lengths, count, 1, now);
    if (accepted == 0)
        return 0;
    const double start = next_start(link, now);
    sn_emulated_frame frame = {.earliest = now + link->delay_s, .packet_id = packet_id, .batch = ++link->batch};
    frame.period = current_period(link);
    double passed = start;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < accepted; i++) {
        bytes += lengths[i];
        passed = (double)bytes * link->byte_s + start;
        frame.due = passed + link->delay_s;
        append(link, data + offsets[i], lengths[i], frame);
    }
    set_busy(link, passed);
    return accepted;
}

/* --- bursts */

/* Returns when the first frame is due; `late_at` if that is earlier. */
static double first_due(const sn_emulated_link *link, double late_at)
{
    return sn_emulated_is_empty(link) ? late_at : fmin(sn_emulated_frame_at(link, link->first)->due, late_at);
}

int sn_emulated_begins_burst(sn_emulated_link *link, double late_at, double now)
{
    if (now >= link->trim_at)
        sn_emulated_trim(link, now);
    if (now < link->moderated_until || first_due(link, late_at) > now + link->together_s)
        return 0;
    link->moderated_until = now + link->coalesce_s;
    return 1;
}

double sn_emulated_burst_end(const sn_emulated_link *link, double now)
{
    double backlog_s = 0.0;
    if (!sn_emulated_is_empty(link))
        backlog_s = *sn_emulated_period_end(link, sn_emulated_frame_at(link, link->first)->period) - now;
    return now + fmin(link->ahead_s, fmax(link->together_s, link->backlog_part * backlog_s));
}

static bool same_destination(const sn_emulated_link *link, const sn_emulated_frame *a, const sn_emulated_frame *b)
{
    return a->length >= ADDRESS && b->length >= ADDRESS
        && memcmp(link->bytes + a->position, link->bytes + b->position, ADDRESS) == 0;
}

uint32_t sn_emulated_burst(sn_emulated_link *link, double until, double now, int across)
{
    const uint64_t most = link->end - link->first < UINT32_MAX ? link->end - link->first : UINT32_MAX;
    link->burst_bytes = 0;
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
    memset(link->destination, 0, ADDRESS);
    memcpy(link->destination, link->bytes + head->position, head->length < ADDRESS ? head->length : ADDRESS);
    return count;
}

void sn_emulated_take(sn_emulated_link *link, uint32_t count, uint8_t *out, uint32_t *offsets, uint32_t *lengths)
{
    uint64_t used = 0;
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

int64_t sn_emulated_push(sn_emulated_link *link, uint32_t count, int fd, uint32_t address, uint16_t port, uint32_t vni,
                         int gso)
{
    uint32_t offsets[PUSH_FRAMES], lengths[PUSH_FRAMES], pushed = 0;
    link->burst_bytes = 0;
    while (pushed < count) {
        const uint32_t listed = list_frames(link, count - pushed, offsets, lengths);
        uint8_t *from = link->bytes + sn_emulated_frame_at(link, link->first)->position - SN_HEADROOM;
        const int accepted = sn_vxlan_send(fd, address, port, vni, from, offsets, lengths, listed, gso);
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

/* --- flow control */

/* Returns when the bottleneck's queue will be short enough to let the sender continue. */
static double resume_at(const sn_emulated_link *link)
{
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

double sn_emulated_next_time(const sn_emulated_link *link, double late_at)
{
    double at = first_due(link, late_at);
    if (!isinf(at))
        at = fmax(at, link->moderated_until);
    return link->blocked && link->byte_s > 0 ? fmin(at, resume_at(link)) : at;
}
