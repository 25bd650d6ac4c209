/* A ring of pcapng blocks. A block is written where the ring has space for it, in two parts where it ends; an empty ring
   starts again at its beginning, so that what is sent at once stays in the cache. */
#define _GNU_SOURCE
#include "nic/capture_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "words.h"

enum {
    ENHANCED_PACKET = 6,
    EPB_FLAGS = 2,
    EPB_PACKETID = 5,
    PACKET_HEAD = 28,
    PLAIN_END = 16,   /* flags, end of options, length of the block */
    NUMBERED_END = 28 /* and the packet's number */
};

int sn_capture_ring_open(sn_capture_ring *ring)
{
    ring->size = ring->limit + SN_CAPTURE_RESERVE;
    ring->first = ring->used = ring->unasked = 0;
    ring->bytes = malloc(ring->size);
    return ring->bytes ? 0 : -1;
}

void sn_capture_ring_close(sn_capture_ring *ring)
{
    free(ring->bytes);
    ring->bytes = NULL;
    ring->size = ring->first = ring->used = 0;
    ring->is_ending = true;
}

/* Copies bytes behind those that are queued; there is space for them. */
static void push(sn_capture_ring *ring, const void *data, uint64_t size)
{
    uint64_t at = ring->first + ring->used;
    if (at >= ring->size)
        at -= ring->size;
    const uint64_t whole = ring->size - at < size ? ring->size - at : size;
    memcpy(ring->bytes + at, data, whole);
    if (whole < size)
        memcpy(ring->bytes, (const uint8_t *)data + whole, size - whole);
    ring->used += size;
}

static void remove_first(sn_capture_ring *ring, uint64_t size)
{
    ring->used -= size;
    ring->first += size;
    if (ring->first >= ring->size)
        ring->first -= ring->size;
    if (ring->used == 0)
        ring->first = 0;
}

/* The queued bytes: one part, or two. Returns how many parts. */
static int queued(const sn_capture_ring *ring, struct iovec parts[2])
{
    const uint64_t behind = ring->size - ring->first, first = ring->used < behind ? ring->used : behind;
    parts[0] = (struct iovec){ring->bytes + ring->first, first};
    parts[1] = (struct iovec){ring->bytes, ring->used - first};
    return first < ring->used ? 2 : 1;
}

static uint32_t kept_of(const sn_capture_ring *ring, uint64_t length)
{
    return (uint32_t)(length < ring->snaplen ? length : ring->snaplen);
}

static uint32_t end_of(const sn_capture_batch *batch)
{
    return batch->number ? NUMBERED_END : PLAIN_END;
}

uint64_t sn_capture_ring_block(const sn_capture_ring *ring, const sn_capture_batch *batch, uint64_t length)
{
    return PACKET_HEAD + ((kept_of(ring, length) + UINT64_C(3)) & ~UINT64_C(3)) + end_of(batch);
}

bool sn_capture_ring_admit(sn_capture_ring *ring, const sn_capture_batch *batch, uint64_t count, uint64_t size)
{
    if (ring->interfaces[batch->side] < 0 || ring->is_ending || ring->error)
        return false;
    ring->received[batch->side] += count;
    if (ring->used + size <= ring->limit)
        return true;
    ring->dropped[batch->side] += count;
    return false;
}

void sn_capture_ring_begin(sn_capture_ring *ring, const sn_capture_batch *batch, uint32_t length)
{
    uint8_t head[PACKET_HEAD];
    ring->length = length;
    ring->left = kept_of(ring, length);
    sn_store32(head, ENHANCED_PACKET);
    sn_store32(head + 4, (uint32_t)sn_capture_ring_block(ring, batch, length));
    sn_store32(head + 8, (uint32_t)ring->interfaces[batch->side]);
    sn_store32(head + 12, (uint32_t)(batch->time_ns >> 32));
    sn_store32(head + 16, (uint32_t)batch->time_ns);
    sn_store32(head + 20, ring->left);
    sn_store32(head + 24, length);
    push(ring, head, sizeof head);
}

void sn_capture_ring_add(sn_capture_ring *ring, const uint8_t *data, uint32_t size)
{
    const uint32_t part = size < ring->left ? size : ring->left;
    push(ring, data, part);
    ring->left -= part;
}

void sn_capture_ring_end(sn_capture_ring *ring, const sn_capture_batch *batch)
{
    const uint32_t padding = -kept_of(ring, ring->length) & 3;
    const uint32_t size = (uint32_t)sn_capture_ring_block(ring, batch, ring->length);
    uint8_t end[3 + NUMBERED_END] = {0}, *at = end + padding;
    sn_store32(at, 4 << 16 | EPB_FLAGS);
    sn_store32(at + 4, batch->direction);
    at += 8;
    if (batch->number) {
        sn_store32(at, 8 << 16 | EPB_PACKETID);
        sn_store64(at + 4, batch->number);
        at += 12;
    }
    sn_store32(at, 0);
    sn_store32(at + 4, size);
    push(ring, end, padding + end_of(batch));
    ring->unasked += size;
}

void sn_capture_ring_frames(sn_capture_ring *ring, const sn_capture_batch *batch, const uint8_t *data,
                            const uint32_t *offsets, const uint32_t *lengths, uint32_t count)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < count; i++)
        size += sn_capture_ring_block(ring, batch, lengths[i]);
    if (!sn_capture_ring_admit(ring, batch, count, size))
        return;
    for (uint32_t i = 0; i < count; i++) {
        sn_capture_ring_begin(ring, batch, lengths[i]);
        sn_capture_ring_add(ring, data + offsets[i], lengths[i]);
        sn_capture_ring_end(ring, batch);
    }
    sn_capture_ring_settle(ring);
}

bool sn_capture_ring_append(sn_capture_ring *ring, const uint8_t *blocks, uint64_t size)
{
    if (ring->size - ring->used < size)
        return false;
    push(ring, blocks, size);
    return true;
}

void sn_capture_ring_settle(sn_capture_ring *ring)
{
    if (ring->unasked >= SN_CAPTURE_FLUSH_BYTES)
        sn_capture_ring_flush(ring);
}

void sn_capture_ring_flush(sn_capture_ring *ring)
{
    ring->unasked = 0;
    while (ring->used && ring->fd >= 0 && !ring->error) {
        struct iovec parts[2];
        struct msghdr message = {.msg_iov = parts};
        message.msg_iovlen = (size_t)queued(ring, parts);
        /* MSG_DONTWAIT beside O_NONBLOCK, which a process that kept a copy of the file descriptor can clear */
        const ssize_t sent = sendmsg(ring->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0)
            remove_first(ring, (uint64_t)sent);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            ring->error = errno;
    }
}

uint64_t sn_capture_ring_take(sn_capture_ring *ring, uint8_t *out, uint64_t size)
{
    struct iovec parts[2];
    uint64_t taken = 0;
    queued(ring, parts);
    for (int i = 0; i < 2 && taken < size; i++) {
        const uint64_t part = parts[i].iov_len < size - taken ? parts[i].iov_len : size - taken;
        memcpy(out + taken, parts[i].iov_base, part);
        taken += part;
    }
    remove_first(ring, taken);
    return taken;
}
