/* The preloaded socket calls: opening, binding, connecting and accepting. Sockets that are not a NIC's go to the kernel.

   TCP over IPv4 is the NIC's, also where a socket of IPv6 serves both: it becomes a NIC's stream when it is bound to all
   addresses of both, or connects to an address of IPv4. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

typedef struct __attribute__((packed)) { /* ACCEPTED of softnic/ipc/control.py */
    uint8_t number[8], ip[4], port[2], unused[2];
} accepted_record;

PRELOADED int socket(int family, int type, int protocol)
{
    const int flags = type & (SOCK_CLOEXEC | SOCK_NONBLOCK);
    sp_stream stream;

    if (family == AF_INET && (type & ~flags) == SOCK_STREAM && sp_nic() &&
        (!protocol || protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP))
        return sp_result(sp_open(flags, false, &stream));
    return REAL(socket)(family, type, protocol);
}

/* Whether a call with this address on this descriptor is for the NIC, which gets the stream for it if it has none yet.
   Returns 1, 0: the kernel's, or -errno. */
static int claim(int fd, const struct sockaddr *address, socklen_t size, sp_address *to, sp_stream *stream)
{
    const bool is_stream = sp_stream_of(fd, stream);
    int error = sp_parse(address, size, to);

    if (is_stream) {
        if (error || (address->sa_family == AF_INET6) != stream->six)
            return error ? error : -EAFNOSUPPORT;
        return 1;
    }
    if (error || !sp_nic() || address->sa_family != AF_INET6 || !sp_is_six(fd, !to->ip))
        return 0;
    error = sp_replace(fd, true, stream);
    return error ? error : 1;
}

static int do_bind(const sp_stream *stream, const sp_address *address)
{
    const uint8_t *ip = (const uint8_t *)&address->ip;
    char reply[SP_REPLY];

    return sp_call(reply, -1, "{\"type\":\"Bind\",\"address\":\"%d.%d.%d.%d\",\"port\":%d,\"stream\":%lld}", ip[0],
                   ip[1], ip[2], ip[3], address->port, (long long)stream->number);
}

PRELOADED int bind(int fd, const struct sockaddr *address, socklen_t size)
{
    sp_address to;
    sp_stream stream;
    const int claimed = claim(fd, address, size, &to, &stream);

    if (!claimed)
        return REAL(bind)(fd, address, size);
    return sp_result(claimed < 0 ? claimed : do_bind(&stream, &to));
}

static int do_listen(int fd, const sp_stream *stream, int backlog)
{
    char reply[SP_REPLY];
    sp_status status;
    int error = sp_query(stream, false, &status);

    if (error)
        return error;
    if (strcmp(status.state, "BOUND") && strcmp(status.state, "LISTEN"))
        return -EINVAL;
    if (!status.local.port)
        error = do_bind(stream, &(sp_address){0});
    if (error)
        return error;
    sp_tag(fd, status.local.port);
    error = sp_call(reply, -1, "{\"type\":\"Listen\",\"stream\":%lld,\"backlog\":%d}", (long long)stream->number,
                    backlog < 0 ? 0 : backlog > 0xFFFF ? 0xFFFF : backlog);
    if (!error && strcmp(status.state, "LISTEN"))
        sp_block(fd); /* it is not writable */
    return error;
}

PRELOADED int listen(int fd, int backlog)
{
    sp_stream stream;

    return sp_stream_of(fd, &stream) ? sp_result(do_listen(fd, &stream, backlog)) : REAL(listen)(fd, backlog);
}

/* -- connecting -- */

/* Whether a signal that interrupts a call is to end it: there is a handler without SA_RESTART. */
static bool ends_calls(void)
{
    struct sigaction action;

    for (int number = 1; number < NSIG; number++)
        if (!sigaction(number, NULL, &action) && action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN &&
            !(action.sa_flags & SA_RESTART))
            return true;
    return false;
}

/* Waits for the outcome of a connect, as long as SO_SNDTIMEO says. */
static int wait_connected(int fd, const sp_stream *stream)
{
    struct pollfd poll_fd = {fd, POLLOUT, 0};
    struct timeval limit = {0};
    socklen_t size = sizeof limit;

    REAL(getsockopt)(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, &size);
    const int64_t limit_ms = (int64_t)limit.tv_sec * 1000 + (limit.tv_usec + 999) / 1000;
    const int64_t end = sp_now_ms() + limit_ms;
    for (;;) {
        const int64_t left = limit_ms ? end - sp_now_ms() : -1;
        const int ready = REAL(poll)(&poll_fd, 1, limit_ms && left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left);
        if (ready > 0)
            return sp_settle(fd, stream);
        if (!ready)
            return -EINPROGRESS;
        if (errno != EINTR || ends_calls())
            return -errno;
    }
}

static int start_connect(int fd, const sp_stream *stream, const sp_address *to)
{
    const uint8_t *ip = (const uint8_t *)&to->ip;
    char reply[SP_REPLY];
    int size = 0;
    socklen_t space = sizeof size;

    sp_tag(fd, to->port);
    REAL(getsockopt)(fd, SOL_SOCKET, SO_SNDBUF, &size, &space);
    const long long blocker = sp_block(fd);
    const int error = sp_call(reply, -1,
                              "{\"type\":\"Connect\",\"address\":\"%d.%d.%d.%d\",\"port\":%d,\"stream\":%lld,"
                              "\"write_blocker\":%lld}",
                              ip[0], ip[1], ip[2], ip[3], to->port, (long long)stream->number, blocker);
    if (!error) {
        sp_mark_connect(fd, true);
        return 0;
    }
    sp_mark_connect(fd, false);
    size /= 2; /* the kernel returns twice what was set */
    REAL(setsockopt)(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return error;
}

static int do_connect(int fd, sp_stream *stream, sp_address *to)
{
    char reply[SP_REPLY];
    sp_status status;
    int error = sp_query(stream, false, &status);

    if (error || status.error || sp_marked(fd) == SP_PENDING)
        return error ? error : sp_settle(fd, stream); /* called again, which reports the outcome */
    if (sp_is_connecting(&status))
        return -EALREADY;
    if (!strcmp(status.state, "CLOSED") && REAL(poll)(&(struct pollfd){fd, 0, 0}, 1, 0) == 1) {
        error = sp_replace(fd, stream->six, stream); /* it was connected before */
        if (error)
            return error;
    } else if (strcmp(status.state, "BOUND") && strcmp(status.state, "CLOSED")) {
        return -EISCONN;
    }
    if (!to->ip) { /* this node */
        char own[64] = "[";
        error = sp_call(reply, -1, "{\"type\":\"QueryNic\"}");
        sp_address address;
        if (error || !sp_text(sp_member(reply, "ip"), own + 2, 32))
            return error ? error : -EPROTO;
        own[1] = '"';
        strcat(own, "\",0]");
        if (!sp_endpoint(own, &address))
            return -EPROTO;
        to->ip = address.ip;
    }
    error = start_connect(fd, stream, to);
    if (error || fcntl(fd, F_GETFL) & O_NONBLOCK)
        return error ? error : -EINPROGRESS;
    return wait_connected(fd, stream);
}

PRELOADED int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    sp_address to;
    sp_stream stream;
    const int claimed = claim(fd, address, size, &to, &stream);

    if (!claimed)
        return REAL(connect)(fd, address, size);
    return sp_result(claimed < 0 ? claimed : do_connect(fd, &stream, &to));
}

/* -- accepting -- */

/* Receives a record with the descriptor of a connection. Returns that, or -errno. */
static int receive_accepted(int fd, accepted_record *record)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } rights;
    struct iovec part = {record, sizeof *record};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights,
                             .msg_controllen = sizeof rights.space};
    char first;
    int made;

    if (REAL(recv)(fd, &first, 1, MSG_PEEK) < 0) /* waits for a record */
        return errno == ECONNRESET ? -EINVAL : -errno;
    made = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* without a free descriptor it stays queued */
    if (made < 0)
        return -errno;
    close(made);
    const ssize_t size = REAL(recvmsg)(fd, &message, MSG_CMSG_CLOEXEC);
    if (size != (ssize_t)sizeof *record)
        return size < 0 && errno != ECONNRESET ? -errno : -EINVAL; /* the listening socket was shut down */
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return -EMFILE;
    memcpy(&made, CMSG_DATA(header), sizeof made);
    return made;
}

static int do_accept(int fd, const sp_stream *listening, struct sockaddr *address, socklen_t *size, int flags)
{
    accepted_record record;
    sp_stream stream = {0, listening->six};
    sp_address peer;
    char mark;

    if (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK))
        return -EINVAL;
    if (REAL(poll)(&(struct pollfd){fd, POLLIN, 0}, 1, 0) < 1) { /* else it is known to be listening when it is read */
        sp_status status;
        const int error = sp_query(listening, false, &status);
        if (error && error != -ENETDOWN) /* a NIC that is slow to answer may have connections nevertheless */
            return error;
        if (!error && strcmp(status.state, "LISTEN"))
            return -EINVAL;
    }
    const int made = receive_accepted(fd, &record);
    if (made < 0)
        return made;
    for (size_t index = 0; index < sizeof record.number; index++)
        stream.number = stream.number << 8 | record.number[index];
    memcpy(&peer.ip, record.ip, sizeof peer.ip);
    peer.port = (uint16_t)(record.port[0] << 8 | record.port[1]);
    sp_name(made, &stream);
    REAL(recv)(made, &mark, 1, MSG_DONTWAIT);
    if (!(flags & SOCK_CLOEXEC))
        fcntl(made, F_SETFD, 0);
    if (flags & SOCK_NONBLOCK)
        fcntl(made, F_SETFL, O_RDWR | O_NONBLOCK);
    sp_format(&peer, stream.six, address, size);
    return made;
}

PRELOADED int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    sp_stream stream;

    if (!sp_stream_of(fd, &stream))
        return REAL(accept4)(fd, address, size, flags);
    return sp_result(do_accept(fd, &stream, address, size, flags));
}

PRELOADED int accept(int fd, struct sockaddr *address, socklen_t *size)
{
    sp_stream stream;

    if (!sp_stream_of(fd, &stream))
        return REAL(accept)(fd, address, size);
    return sp_result(do_accept(fd, &stream, address, size, 0));
}
