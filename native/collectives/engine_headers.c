/* Headers of collectives: that two ranks take part in the same one is known when their headers are the same bytes. */
#include <string.h>

#include "collectives/engine.h"

enum {
    LENGTH_BYTES = 4,      /* in front of every message: softnic/collectives/framing.py */
    LONGEST_KEPT = 4 << 10, /* of a header: less than any receive window, which what is kept narrows */
    MOST_EARLY = 32 << 10
};

void sn_flow_attach(sn_flow *flow, sn_step_queue *steps, sn_header_queue *headers)
{
    flow->steps = steps;
    flow->headers = headers;
}

void sn_header_expect(sn_header_queue *q, sn_header *header)
{
    header->next = NULL;
    if (q->first)
        q->last->next = header;
    else
        q->first = header;
    q->last = header;
}

void sn_header_queue_clear(sn_header_queue *q)
{
    q->first = q->last = NULL;
}

void sn_header_queue_match(sn_header_queue *q)
{
    sn_header *header = q->first;
    q->first = header->next;
    q->steps->matched = header->op->number;
    sn_engine_count_done(q->engine, header->op);
}

int64_t sn_header_queue_take(sn_header_queue *q, const uint8_t *data, int64_t size)
{
    int64_t used = 0;
    while (q->first && size - used >= q->first->size && memcmp(data + used, q->first->data, (size_t)q->first->size) == 0) {
        used += q->first->size;
        sn_header_queue_match(q);
    }
    return used;
}

/* Whether what is kept begins as the expected header does, as far as it is there. */
static bool begins_as_expected(const sn_header_queue *q)
{
    const sn_header *header = q->first;
    int64_t offset = 0;
    for (const sn_chunk *chunk = q->flow->receive_buffer.first; chunk && offset < header->size; chunk = chunk->next) {
        const int64_t there = chunk->end - chunk->start, left = header->size - offset;
        const int64_t count = there < left ? there : left;
        if (memcmp(chunk->data + chunk->start, header->data + offset, (size_t)count) != 0)
            return false;
        offset += count;
    }
    return true;
}

/* Looks at messages that nothing is expected of yet. Returns whether all of them may be headers. */
static bool are_headers(sn_header_queue *q)
{
    for (;;) {
        uint8_t begin[LENGTH_BYTES + sizeof q->start];
        const int64_t there = sn_receive_buffer_peek(&q->flow->receive_buffer, q->checked, begin, sizeof begin);
        if (there > LENGTH_BYTES && memcmp(begin + LENGTH_BYTES, q->start, (size_t)(there - LENGTH_BYTES)) != 0)
            return false;
        if (there < (int64_t)sizeof begin)
            return true;
        const uint32_t length = begin[0] | (uint32_t)begin[1] << 8 | (uint32_t)begin[2] << 16 | (uint32_t)begin[3] << 24;
        const int64_t whole = LENGTH_BYTES + (int64_t)length;
        if (whole > LONGEST_KEPT || q->checked > MOST_EARLY)
            return false;
        if (q->flow->receive_buffer.size - q->checked < whole)
            return true;
        q->checked += whole;
    }
}

/* The number of the operation that the first kept header is for, the first field of CollectiveHeader
   (softnic/collectives/messages.py): a msgpack integer; -1: it is none, or not complete. */
static int64_t first_number(const sn_header_queue *q)
{
    enum { UINT8 = 0xcc, UINT64 = 0xcf };
    uint8_t begin[LENGTH_BYTES + sizeof q->start + 1 + sizeof(uint64_t)];
    const int64_t there = sn_receive_buffer_peek(&q->flow->receive_buffer, 0, begin, sizeof begin);
    const uint8_t *at = begin + LENGTH_BYTES + sizeof q->start;
    if (begin + there <= at)
        return -1;
    if (*at < UINT8)
        return *at < 0x80 ? *at : -1;
    const int64_t bytes = *at <= UINT64 ? INT64_C(1) << (*at - UINT8) : there;
    uint64_t number = 0;
    if (begin + there < at + 1 + bytes)
        return -1;
    for (int64_t i = 1; i <= bytes; i++)
        number = number << 8 | at[i];
    return (int64_t)number;
}

int64_t sn_header_queue_receive(sn_header_queue *q)
{
    int64_t used = 0;
    while (!q->in_python && q->first && q->flow->receive_buffer.size) {
        const int64_t size = q->first->size;
        if (size > LONGEST_KEPT || !begins_as_expected(q))
            q->in_python = true;
        if (q->in_python || q->flow->receive_buffer.size < size)
            return used;
        sn_receive_buffer_drop(&q->flow->receive_buffer, size);
        used += size;
        q->checked = q->checked > size ? q->checked - size : 0;
        sn_header_queue_match(q);
    }
    if (q->in_python || q->flow->receive_buffer.size == 0)
        return used;
    const int64_t number = q->first ? -1 : first_number(q);
    if (!are_headers(q) || (number >= 0 && number <= q->engine->posted))
        q->in_python = true; /* this rank does not take part in what the other does */
    return used;
}
