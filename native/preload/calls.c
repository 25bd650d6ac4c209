/* The preloaded socket calls: opening, binding, connecting and accepting. Sockets that are not a NIC's go to the kernel.

   TCP over IPv4 is the NIC's, also where a socket of IPv6 serves both: it becomes a NIC's stream when it is bound to all
   addresses of both, or connects to an address of IPv4. */
#include "preload/preload.h"

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
    if (error || !sp_nic() || address->sa_family != AF_INET6 || !sp_is_six(fd))
        return 0;
    error = sp_replace(fd, true, stream);
    return error ? error : 1;
}

static int do_bind(const sp_stream *stream, const sp_address *address)
{
    const uint8_t *ip = (const uint8_t *)&address->ip;
    char reply[SP_REPLY];

    return sp_ask(reply, stream, "{\"type\":\"Bind\",\"address\":\"%d.%d.%d.%d\",\"port\":%d,\"stream\":%lld}", ip[0],
                  ip[1], ip[2], ip[3], address->port, (long long)stream->number);
}

/* A stream's address of no family that says "any" is one of IPv4, as in Linux. */
static bool is_any(int fd, const struct sockaddr *address, socklen_t size)
{
    struct sockaddr_in four;
    sp_stream stream;

    if (!address || size < sizeof four || address->sa_family != AF_UNSPEC || !sp_stream_of(fd, &stream) || stream.six)
        return false;
    memcpy(&four, address, sizeof four);
    return four.sin_addr.s_addr == htonl(INADDR_ANY);
}

PRELOADED int bind(int fd, const struct sockaddr *address, socklen_t size)
{
    sp_address to;
    sp_stream stream;
    struct sockaddr_in four;

    if (is_any(fd, address, size)) {
        memcpy(&four, address, sizeof four);
        four.sin_family = AF_INET;
        address = (const struct sockaddr *)&four;
    }
    const int claimed = claim(fd, address, size, &to, &stream);

    if (!claimed)
        return REAL(bind)(fd, address, size);
    return sp_result(claimed < 0 ? claimed : do_bind(&stream, &to));
}

static int do_listen(int fd, sp_stream *stream, int backlog)
{
    char reply[SP_REPLY];
    sp_status status;
    int error = sp_query(stream, false, &status);

    if (error)
        return error;
    if (!strcmp(status.state, "CLOSED") && !status.has_peer && status.local.port) { /* it has listened before */
        error = sp_replace(fd, stream->six, stream);
        if (!error)
            error = do_bind(stream, &status.local);
    } else if (strcmp(status.state, "BOUND") && strcmp(status.state, "LISTEN")) {
        return -EINVAL;
    } else if (!status.local.port) {
        error = do_bind(stream, &(sp_address){0});
    }
    if (error)
        return error;
    sp_tag(fd, status.local.port);
    const int size = strcmp(status.state, "LISTEN") ? sp_block(fd) : 0; /* it is not writable */
    error = sp_ask(reply, stream, "{\"type\":\"Listen\",\"stream\":%lld,\"backlog\":%d}", (long long)stream->number,
                    backlog < 0 ? 0 : backlog > 0xFFFF ? 0xFFFF : backlog);
    if (error && size)
        sp_unblock(fd, size);
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

/* Waits for the outcome of a connect, as long as SO_SNDTIMEO says. With a limit every handled signal ends it (signal(7)),
   and the connect goes on. */
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
        if (errno != EINTR || limit_ms || ends_calls())
            return -errno;
    }
}

static int start_connect(int fd, const sp_stream *stream, const sp_address *to)
{
    const uint8_t *ip = (const uint8_t *)&to->ip;
    char reply[SP_REPLY];

    sp_tag(fd, to->port);
    const int size = sp_block(fd);
    const int error = sp_ask(reply, stream,
                              "{\"type\":\"Connect\",\"address\":\"%d.%d.%d.%d\",\"port\":%d,\"stream\":%lld}",
                              ip[0], ip[1], ip[2], ip[3], to->port, (long long)stream->number);
    sp_mark_connect(fd, !error);
    if (error)
        sp_unblock(fd, size);
    return error;
}

static int do_connect(int fd, sp_stream *stream, sp_address *to)
{
    const bool waits = !(fcntl(fd, F_GETFL) & O_NONBLOCK);
    sp_status status;
    int error = sp_query(stream, false, &status);

    if (error)
        return error;
    if (status.error || sp_marked(fd) == SP_PENDING || sp_is_connecting(&status)) { /* called again */
        error = sp_settle(fd, stream);
        return error == -EALREADY && waits ? wait_connected(fd, stream) : error;
    }
    if (!strcmp(status.state, "CLOSED") && REAL(poll)(&(struct pollfd){fd, 0, 0}, 1, 0) == 1) {
        error = sp_replace(fd, stream->six, stream); /* it was connected before */
        if (error)
            return error;
    } else if (strcmp(status.state, "BOUND") && strcmp(status.state, "CLOSED")) {
        return -EISCONN;
    }
    if (!to->ip) { /* this node */
        sp_address own;
        error = sp_own_address(&own);
        if (error)
            return error;
        to->ip = own.ip;
    }
    error = start_connect(fd, stream, to);
    if (error)
        return error;
    return waits ? wait_connected(fd, stream) : -EINPROGRESS;
}

/* Ends what the stream does, with a reset, so that it can be used anew: connect to no family. */
static int dissolve(int fd, sp_stream *stream)
{
    sp_status status;
    int error = sp_query(stream, false, &status);

    if (error ? error != -ECONNRESET : !strcmp(status.state, "BOUND")) /* ECONNRESET: its NIC has ended */
        return error;
    const int old = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (old < 0)
        return -errno;
    error = sp_replace(fd, stream->six, stream);
    if (!error)
        setsockopt(old, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(old);
    return error;
}

PRELOADED int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    sp_address to;
    sp_stream stream;

    if (address && size >= sizeof address->sa_family && address->sa_family == AF_UNSPEC && sp_stream_of(fd, &stream))
        return sp_result(dissolve(fd, &stream));
    const int claimed = claim(fd, address, size, &to, &stream);

    if (!claimed)
        return REAL(connect)(fd, address, size);
    return sp_result(claimed < 0 ? claimed : do_connect(fd, &stream, &to));
}

/* -- accepting -- */

/* Receives the descriptor of a connection. Returns that, or -errno. */
static int receive_accepted(int fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } rights;
    char first;
    struct iovec part = {&first, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights,
                             .msg_controllen = sizeof rights.space};
    int made;

    if (REAL(recv)(fd, &first, 1, MSG_PEEK) < 0) /* waits for a connection */
        return errno == ECONNRESET ? -EINVAL : -errno;
    made = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* without a free descriptor it stays queued */
    if (made < 0)
        return -errno;
    close(made);
    const ssize_t size = REAL(recvmsg)(fd, &message, MSG_CMSG_CLOEXEC);
    if (size < 1)
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
    sp_stream stream = {.six = listening->six};
    sp_address peer;

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
    const int made = receive_accepted(fd);
    if (made < 0)
        return made;
    if (REAL(recv)(made, &record, sizeof record, MSG_DONTWAIT) != (ssize_t)sizeof record) {
        REAL(close)(made);
        return -ECONNABORTED;
    }
    for (size_t index = 0; index < sizeof record.number; index++)
        stream.number = stream.number << 8 | record.number[index];
    memcpy(&peer.ip, record.ip, sizeof peer.ip);
    peer.port = (uint16_t)(record.port[0] << 8 | record.port[1]);
    sp_name(made, &stream);
    sp_mark_connected(made);
    sp_inherit_options(fd, made);
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
