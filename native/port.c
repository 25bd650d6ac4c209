/* Reads from and writes to applications: daemons/softnicd/streams.py, `pull` and `push`. */
#define _GNU_SOURCE
#include "port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { MAX_PIECES = 64, CHUNK_BYTES = 256 << 10, STEPS = 8 };

/* Whether bytes wait in the file descriptor. A read also ends early at an urgent mark, and after bytes that carried file
   descriptors. */
static bool has_more(const sn_port *port)
{
    int waiting = 0;
    return ioctl((int)port->fd, FIONREAD, &waiting) == 0 && waiting > 0;
}

int64_t sn_port_pull(sn_port *port)
{
    sn_flow *flow = port->flow;
    sn_send_buffer *buffer = &flow->send_buffer;
    if (!port->readable || !port->input_open || port->offloaded)
        return 0;
    if (port->write_blocker || !flow->connection.established || flow->send.fin_queued ||
        buffer->memory_size < 2 * buffer->capacity)
        return -1;
    int64_t size = sn_send_buffer_space(buffer);
    if (size == 0) {
        flow->connection.wants_space = true;
        return 0;
    }
    if (size > SN_READ_BYTES)
        size = SN_READ_BYTES;
    uint8_t *at = (uint8_t *)(uintptr_t)buffer->memory_address + (buffer->end - buffer->origin);
    ssize_t count = recv((int)port->fd, at, (size_t)size, MSG_DONTWAIT);
    if (count > 0) {
        buffer->end += count;
        port->offset += count;
        port->readable = count == size || port->ending || has_more(port);
        return count;
    }
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        port->readable = false;
        return 0;
    }
    if (count < 0 && errno == ECONNRESET)
        port->left_unread = true; /* the kernel reports it once */
    return -1;
}

int64_t sn_port_write(const sn_port *port, const struct iovec *pieces, uint32_t count)
{
    struct msghdr message = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = count};
    ssize_t written;
    do {
        written = sendmsg((int)port->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (written < 0 && errno == EINTR);
    if (written >= 0)
        return written;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
}

void sn_port_drop(sn_port *port, int64_t count)
{
    while (port->first && count >= port->first->end - port->first->start) {
        count -= port->first->end - port->first->start;
        sn_chunk_free(sn_port_take(port));
    }
    if (count) {
        port->first->start += (uint32_t)count;
        port->kept -= count;
    }
}

void sn_port_keep(sn_port *port, sn_chunk *chunk, uint32_t size)
{
    chunk->end += size;
    port->kept += size;
    if (chunk == port->last)
        return;
    if (port->last)
        port->last->next = chunk;
    else
        port->first = chunk;
    port->last = chunk;
}

int64_t sn_port_push(sn_port *port)
{
    int64_t total = 0;
    while (port->first) {
        struct iovec pieces[MAX_PIECES];
        uint32_t used = 0;
        int64_t size = 0;
        for (sn_chunk *chunk = port->first; chunk && used < MAX_PIECES; chunk = chunk->next, used++) {
            pieces[used] = (struct iovec){chunk->data + chunk->start, chunk->end - chunk->start};
            size += chunk->end - chunk->start;
        }
        int64_t written = sn_port_write(port, pieces, used);
        if (written < 0)
            return -1;
        sn_port_drop(port, written);
        total += written;
        if (written < size)
            break;
    }
    return total;
}

bool sn_port_consume(sn_port *port, int64_t count)
{
    sn_receive *receive = &port->flow->receive;
    receive->unread -= count;
    port->flow->connection.readable_notified = false;
    int64_t most = receive->rcv_nxt + receive->capacity - receive->unread;
    return most - receive->rcv_adv >= receive->capacity / STEPS && !receive->eof;
}

sn_chunk *sn_chunk_new(uint32_t size)
{
    if (size < CHUNK_BYTES)
        size = CHUNK_BYTES;
    sn_chunk *chunk = malloc(sizeof *chunk + size);
    if (chunk)
        *chunk = (sn_chunk){.size = size};
    return chunk;
}

void sn_chunk_free(sn_chunk *chunk)
{
    free(chunk);
}

int sn_port_keep_copy(sn_port *port, const uint8_t *data, uint32_t size)
{
    sn_chunk *chunk = port->last;
    if (chunk == NULL || chunk->size - chunk->end < size)
        chunk = sn_chunk_new(size);
    if (chunk == NULL)
        return -1;
    memcpy(chunk->data + chunk->end, data, size);
    sn_port_keep(port, chunk, size);
    return 0;
}

sn_chunk *sn_port_take(sn_port *port)
{
    sn_chunk *chunk = port->first;
    if (chunk) {
        port->first = chunk->next;
        port->kept -= chunk->end - chunk->start;
        if (port->first == NULL)
            port->last = NULL;
        chunk->next = NULL;
    }
    return chunk;
}

void sn_port_read(sn_port *port, uint8_t *out, int64_t size)
{
    while (size > 0) {
        const sn_chunk *chunk = port->first;
        const int64_t there = chunk->end - chunk->start, count = there < size ? there : size;
        memcpy(out, chunk->data + chunk->start, (size_t)count);
        sn_port_drop(port, count);
        out += count;
        size -= count;
    }
}

void sn_port_clear(sn_port *port)
{
    while (port->first)
        sn_chunk_free(sn_port_take(port));
}
