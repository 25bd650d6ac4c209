/* Records of a node: each is made once, and queued for every capture that has space for it. */
#include "nic/capture.h"

#include <math.h>

#include "tcp/flow_steps.h"

enum {
    CUT = 64, /* host frames but the last end at multiples of this */
    DEFAULT_TTL = 64
};

/* Where the next payload byte of a segment is. */
typedef struct {
    const uint8_t *data;
    const sn_payload_ref *pieces; /* from the current one on */
    uint32_t done;                /* bytes of the current one that are behind */
} cursor;

/* The next bytes that lie together, at most `most`. */
static uint32_t next_bytes(cursor *at, uint32_t most, const uint8_t **bytes)
{
    while (at->done == at->pieces->length) {
        at->pieces++;
        at->done = 0;
    }
    const uint32_t left = at->pieces->length - at->done, size = left < most ? left : most;
    *bytes = at->data + at->pieces->offset + at->done;
    at->done += size;
    return size;
}

/* The sum of the next `length` bytes, which stay the next ones. */
static uint64_t sum_of(cursor at, uint32_t length)
{
    uint64_t sum = 0;
    const uint8_t *bytes;
    for (uint32_t done = 0, size; done < length; done += size) {
        size = next_bytes(&at, length - done, &bytes);
        const uint16_t part = sn_fold(sn_sum(bytes, size));
        sum += done & 1 ? __builtin_bswap16(part) : part; /* RFC 1071, section 2 (B) */
    }
    return sum;
}

static void add_payload(sn_capture_ring *ring, cursor at, uint32_t length)
{
    const uint8_t *bytes;
    for (uint32_t done = 0, size; done < length && ring->left; done += size) {
        size = next_bytes(&at, length - done, &bytes);
        sn_capture_ring_add(ring, bytes, size);
    }
}

static void pass_over(cursor *at, uint32_t length)
{
    const uint8_t *bytes;
    for (uint32_t done = 0; done < length;)
        done += next_bytes(at, length - done, &bytes);
}

static sn_capture_batch batch_of(const sn_capture *c, uint32_t side, uint32_t direction, uint64_t packet_id, double now)
{
    return (sn_capture_batch){
        .time_ns = (uint64_t)(c->epoch_ns + llrint(now * 1e9)),
        .number = packet_id ? (uint64_t)c->ip << 32 | (packet_id & 0xffffffff) : 0,
        .side = side,
        .direction = direction,
    };
}

/* Has what was queued sent in time. */
static void settle(sn_capture *c, double now)
{
    for (uint32_t i = 0; i < c->count; i++) {
        sn_capture_ring_settle(c->rings[i]);
        if (c->rings[i]->used && c->flush_at == INFINITY)
            c->flush_at = now + c->interval_s;
    }
}

void sn_capture_flush(sn_capture *c, double now)
{
    if (now < c->flush_at)
        return;
    c->flush_at = INFINITY;
    for (uint32_t i = 0; i < c->count; i++)
        sn_capture_ring_flush(c->rings[i]);
    settle(c, now);
}

void sn_capture_frames(sn_capture *c, uint32_t direction, uint64_t packet_id, const uint8_t *data,
                       const uint32_t *offsets, const uint32_t *lengths, uint32_t count, double now)
{
    const sn_capture_batch batch = batch_of(c, SN_CAPTURE_WIRE, direction, packet_id, now);
    for (uint32_t i = 0; i < c->count; i++)
        sn_capture_ring_frames(c->rings[i], &batch, data, offsets, lengths, count);
    settle(c, now);
}

/* Records a segment with this header and `length` bytes of payload from a cursor on, as frames. */
static void record_segment(sn_capture *c, const sn_capture_batch *batch, const sn_frame_header *header, cursor at,
                           uint64_t length)
{
    const uint64_t room = (IPV4_MAX + ETHERNET_HEADER - header->length) / CUT * CUT;
    const uint64_t whole = length ? (length - 1) / room : 0, last = length - whole * room; /* frames before the last */
    uint32_t admitted = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const uint64_t size = whole * sn_capture_ring_block(c->rings[i], batch, header->length + room) +
                              sn_capture_ring_block(c->rings[i], batch, header->length + last);
        if (sn_capture_ring_admit(c->rings[i], batch, whole + 1, size))
            admitted |= 1u << i;
    }
    for (uint64_t index = 0; index <= whole && admitted; index++) {
        const uint32_t part = (uint32_t)(index < whole ? room : last);
        const uint8_t flags = index < whole ? header->flags & (uint8_t)~(TCP_PSH | TCP_FIN) : header->flags;
        uint8_t first[MAX_HEADER];
        sn_frame_header_write(first, header, part, sum_of(at, part), index * room, (uint32_t)index, flags);
        for (uint32_t i = 0; i < c->count; i++) {
            if (!(admitted >> i & 1))
                continue;
            sn_capture_ring_begin(c->rings[i], batch, (uint32_t)header->length + part);
            sn_capture_ring_add(c->rings[i], first, (uint32_t)header->length);
            add_payload(c->rings[i], at, part);
            sn_capture_ring_end(c->rings[i], batch);
        }
        pass_over(&at, part);
    }
}

int sn_capture_segment(sn_capture *c, const uint8_t *header, uint32_t header_length, const uint8_t *payload,
                       uint64_t length, uint32_t direction, uint64_t packet_id, double now)
{
    if (header_length < ETHERNET_AND_IPV4 + TCP_HEADER || header_length > MAX_HEADER)
        return -1;
    const sn_capture_batch batch = batch_of(c, SN_CAPTURE_HOST, direction, packet_id, now);
    const sn_payload_ref whole = {.length = (uint32_t)length};
    sn_frame_header first;
    sn_frame_header_begin(&first, header, header_length);
    record_segment(c, &batch, &first, (cursor){payload, &whole, 0}, length);
    settle(c, now);
    return 0;
}

static void write_mac(const sn_capture *c, uint8_t *mac, uint32_t ip)
{
    memcpy(mac, c->mac_prefix, 3);
    mac[3] = (uint8_t)(ip >> 16);
    mac[4] = (uint8_t)(ip >> 8);
    mac[5] = (uint8_t)ip;
}

static void record_fields(sn_capture *c, const sn_segment_fields *fields, uint32_t direction, uint64_t packet_id,
                          cursor at, uint64_t length, double now)
{
    const sn_capture_batch batch = batch_of(c, SN_CAPTURE_HOST, direction, packet_id, now);
    uint8_t bytes[MAX_HEADER], destination[6], source[6];
    sn_frame_header header;
    write_mac(c, destination, fields->dst);
    write_mac(c, source, fields->src);
    sn_frame_header_begin(&header, bytes,
                          sn_segment_header(fields, destination, source, (uint16_t)packet_id, bytes));
    record_segment(c, &batch, &header, at, length);
    settle(c, now);
}

void sn_capture_host_frame(sn_capture *c, uint32_t direction, const uint8_t *frame, uint32_t length, double now)
{
    const sn_capture_batch batch = batch_of(c, SN_CAPTURE_HOST, direction, 0, now);
    const uint32_t offset = 0;
    for (uint32_t i = 0; i < c->count; i++)
        sn_capture_ring_frames(c->rings[i], &batch, frame, &offset, &length, 1);
    settle(c, now);
}

void sn_capture_outgoing(sn_capture *c, const sn_segment_fields *fields, const uint8_t *payload, uint64_t length,
                         uint64_t packet_id, double now)
{
    const sn_payload_ref whole = {.length = (uint32_t)length};
    sn_segment_fields sent = *fields;
    sent.ttl = DEFAULT_TTL;
    record_fields(c, &sent, SN_CAPTURE_OUTBOUND, packet_id, (cursor){payload, &whole, 0}, length, now);
}

void sn_capture_sent(sn_capture *c, const sn_flow *flow, const sn_output *out, uint64_t consumed, uint64_t packet_id,
                     double now)
{
    const sn_payload_ref whole = {.length = (uint32_t)consumed};
    const bool is_partial = consumed < (uint64_t)(out->end - out->start);
    sn_segment_fields fields = sn_flow_fields(flow, out);
    if (is_partial)
        fields.flags &= (uint8_t)~(TCP_PSH | TCP_FIN);
    record_fields(c, &fields, SN_CAPTURE_OUTBOUND, packet_id, (cursor){out->data, &whole, 0}, consumed, now);
}

void sn_capture_received(sn_capture *c, const sn_run *run, const uint8_t *batch, const uint8_t *data,
                         const sn_payload_ref *pieces, uint64_t length, double now)
{
    sn_segment_fields fields = {
        .src = run->src,
        .dst = run->dst,
        .sport = run->sport,
        .dport = run->dport,
        .seq = run->seq,
        .ack = run->ack,
        .window = run->window,
        .flags = run->flags,
        .tos = run->tos,
        .ttl = DEFAULT_TTL,
        .has_timestamps = run->has_timestamps,
        .ts_value = run->ts_value,
        .ts_echo = run->ts_echo,
        .sack_blocks = run->sack_blocks,
    };
    for (uint32_t i = 0; i < 2 * fields.sack_blocks; i++)
        fields.sacks[i] = sn_load32be(batch + run->sack_offset + 4 * i);
    record_fields(c, &fields, SN_CAPTURE_INBOUND, 0, (cursor){data, pieces, 0}, length, now);
}
