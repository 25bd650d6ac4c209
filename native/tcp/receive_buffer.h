/* Received bytes of a flow, in order, that its reader has not taken yet, in chunks of memory. */
#ifndef SOFTNIC_RECEIVE_BUFFER_H
#define SOFTNIC_RECEIVE_BUFFER_H
/* C only */
#include <stdint.h>
/* all */

typedef struct sn_chunk {
    struct sn_chunk *next;
    uint32_t size;
    uint32_t start; /* of the bytes that are left */
    uint32_t end;
    uint8_t data[];
} sn_chunk;

typedef struct {
    sn_chunk *first;
    sn_chunk *last;
    int64_t size;
} sn_receive_buffer;

/* Appends a copy of `data`. Returns -1 if there is no memory. */
int sn_receive_buffer_append(sn_receive_buffer *buffer, const uint8_t *data, uint32_t size);

/* Removes `count` bytes from the front; there are as many. */
void sn_receive_buffer_drop(sn_receive_buffer *buffer, int64_t count);

/* Copies the first `size` bytes, and removes them. */
void sn_receive_buffer_read(sn_receive_buffer *buffer, uint8_t *out, int64_t size);

/* Frees all. */
void sn_receive_buffer_clear(sn_receive_buffer *buffer);
void sn_chunk_free(sn_chunk *chunk);

/* C only */

/* A chunk for `size` bytes or more; NULL: there is no memory. */
sn_chunk *sn_chunk_new(uint32_t size);

/* Appends `size` bytes that were written at the end of `chunk`, which is the last one or becomes it. */
void sn_receive_buffer_keep(sn_receive_buffer *buffer, sn_chunk *chunk, uint32_t size);

/* Appends a chunk with its bytes. */
void sn_receive_buffer_add(sn_receive_buffer *buffer, sn_chunk *chunk);

/* Copies bytes from `offset` on. Returns how many there are, at most `size`. */
int64_t sn_receive_buffer_peek(const sn_receive_buffer *buffer, int64_t offset, uint8_t *out, int64_t size);
/* all */

#endif
