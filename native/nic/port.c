/* Reads from and writes to applications: daemons/softnicd/streams.py, `pull` and `push`. */
#define _GNU_SOURCE
#include "nic/port.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

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

int64_t sn_port_push(const sn_port *port, sn_receive_buffer *buffer)
{
    int64_t total = 0;
    while (buffer->first) {
        struct iovec pieces[SN_WRITE_PIECES];
        uint32_t used = 0;
        int64_t size = 0;
        for (const sn_chunk *chunk = buffer->first; chunk && used < SN_WRITE_PIECES; chunk = chunk->next, used++) {
            pieces[used] = (struct iovec){(void *)(chunk->data + chunk->start), chunk->end - chunk->start};
            size += chunk->end - chunk->start;
        }
        int64_t written = sn_port_write(port, pieces, used);
        if (written < 0)
            return total ? total : -1; /* the error comes again */
        sn_receive_buffer_drop(buffer, written);
        total += written;
        if (written < size)
            break;
    }
    return total;
}
