#include "tcp/receive_buffer.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_BYTES = 16 << 10 }; /* of a chunk: small payloads share one */

sn_chunk *sn_chunk_new(uint32_t size)
{
    if (size < LEAST_BYTES)
        size = LEAST_BYTES;
    sn_chunk *chunk = malloc(sizeof *chunk + size);
    if (chunk)
        *chunk = (sn_chunk){.size = size};
    return chunk;
}

void sn_chunk_free(sn_chunk *chunk)
{
    free(chunk);
}

static void drop_first(sn_receive_buffer *b)
{
    sn_chunk *chunk = b->first;
    b->first = chunk->next;
    if (b->first == NULL)
        b->last = NULL;
    b->size -= chunk->end - chunk->start;
    sn_chunk_free(chunk);
}

void sn_receive_buffer_drop(sn_receive_buffer *b, int64_t count)
{
    while (b->first && count >= b->first->end - b->first->start) {
        count -= b->first->end - b->first->start;
        drop_first(b);
    }
    if (count) {
        b->first->start += (uint32_t)count;
        b->size -= count;
    }
}

void sn_receive_buffer_clear(sn_receive_buffer *b)
{
    while (b->first)
        drop_first(b);
}

void sn_receive_buffer_add(sn_receive_buffer *b, sn_chunk *chunk)
{
    chunk->next = NULL;
    b->size += chunk->end - chunk->start;
    if (b->last)
        b->last->next = chunk;
    else
        b->first = chunk;
    b->last = chunk;
}

void sn_receive_buffer_keep(sn_receive_buffer *b, sn_chunk *chunk, uint32_t size)
{
    if (chunk == b->last)
        b->size += size;
    chunk->end += size;
    if (chunk != b->last)
        sn_receive_buffer_add(b, chunk);
}

int sn_receive_buffer_append(sn_receive_buffer *b, const uint8_t *data, uint32_t size)
{
    sn_chunk *chunk = b->last;
    if (chunk == NULL || chunk->size - chunk->end < size)
        chunk = sn_chunk_new(size);
    if (chunk == NULL)
        return -1;
    memcpy(chunk->data + chunk->end, data, size);
    sn_receive_buffer_keep(b, chunk, size);
    return 0;
}

int64_t sn_receive_buffer_peek(const sn_receive_buffer *b, int64_t offset, uint8_t *out, int64_t size)
{
    int64_t copied = 0;
    for (const sn_chunk *chunk = b->first; chunk && copied < size; chunk = chunk->next) {
        int64_t there = chunk->end - chunk->start;
        if (offset >= there) {
            offset -= there;
            continue;
        }
        there -= offset;
        const int64_t count = there < size - copied ? there : size - copied;
        memcpy(out + copied, chunk->data + chunk->start + offset, (size_t)count);
        copied += count;
        offset = 0;
    }
    return copied;
}

void sn_receive_buffer_read(sn_receive_buffer *b, uint8_t *out, int64_t size)
{
    sn_receive_buffer_peek(b, 0, out, size);
    sn_receive_buffer_drop(b, size);
}
