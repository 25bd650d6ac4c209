/* Transfers of bytes on the preloaded library's sockets: the kernel's, with the NIC's errors.

   A descriptor reports only the end of the stream and "broken pipe". Where a call returns one of these, the NIC is asked
   why. Everything else costs no more than the call itself, for sockets and for all other files, once a descriptor has been
   looked at. */
#include "preload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

/* Returns the error that ended a stream, 0: none or not a stream. Preserves errno. */
static int error_of(int fd)
{
    sp_stream stream;
    sp_status status;

    if (!sp_stream_of(fd, &stream))
        return 0;
    const int error = -sp_query(&stream, true, &status);
    return error ? error : status.error;
}

/* Whether the NIC has closed its end of a stream. Without that there is no error. */
static bool has_hung_up(int fd)
{
    struct pollfd poll_fd = {fd, 0, 0};

    return REAL(poll)(&poll_fd, 1, 0) == 1;
}

/* Whether a receive of no bytes, or one that failed so, shall be repeated: the reset concerned bytes written before. */
static bool failed(int fd, ssize_t *received)
{
    if (*received > 0 || (*received < 0 && errno != ECONNRESET))
        return false;
    if (*received == 0 && !has_hung_up(fd)) /* the peer's FIN: the NIC still has its end */
        return false;
    const bool was_reset = *received < 0;
    const int error = error_of(fd);
    if (error && error != EPIPE) { /* that concerns writers */
        errno = error;
        *received = -1;
        return false;
    }
    return was_reset;
}

static ssize_t fail(int error)
{
    errno = error;
    return -1;
}

#define RECEIVE(fd, wanted, call)                                                           \
    ({                                                                                      \
        const int unconnected = sp_check(fd, ENOTCONN);                                     \
        ssize_t received = unconnected ? fail(unconnected) : call;                          \
        if (!unconnected && (wanted) && failed(fd, &received))                              \
            received = call;                                                                \
        received;                                                                           \
    })

/* Whether a receive into these buffers may return bytes. */
static bool has_space(const struct iovec *parts, size_t count)
{
    for (size_t index = 0; index < count; index++)
        if (parts[index].iov_len)
            return true;
    return false;
}

PRELOADED ssize_t read(int fd, void *to, size_t size)
{
    return RECEIVE(fd, size, REAL(read)(fd, to, size));
}

PRELOADED ssize_t readv(int fd, const struct iovec *parts, int count)
{
    return RECEIVE(fd, count > 0 && has_space(parts, (size_t)count), REAL(readv)(fd, parts, count));
}

PRELOADED ssize_t recv(int fd, void *to, size_t size, int flags)
{
    return RECEIVE(fd, size, REAL(recv)(fd, to, size, flags));
}

PRELOADED ssize_t recvfrom(int fd, void *to, size_t size, int flags, struct sockaddr *address, socklen_t *space)
{
    return RECEIVE(fd, size, REAL(recvfrom)(fd, to, size, flags, address, space));
}

PRELOADED ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    return RECEIVE(fd, has_space(message->msg_iov, message->msg_iovlen), REAL(recvmsg)(fd, message, flags));
}

PRELOADED int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
    return (int)RECEIVE(fd, true, REAL(recvmmsg)(fd, messages, count, flags, timeout));
}

/* What programs call that were built with _FORTIFY_SOURCE. */
ssize_t __read_chk(int fd, void *to, size_t size, size_t space);
ssize_t __recv_chk(int fd, void *to, size_t size, size_t space, int flags);
ssize_t __recvfrom_chk(int fd, void *to, size_t size, size_t space, int flags, struct sockaddr *address,
                       socklen_t *space_of_address);

PRELOADED ssize_t __read_chk(int fd, void *to, size_t size, size_t space)
{
    return RECEIVE(fd, size, REAL(__read_chk)(fd, to, size, space));
}

PRELOADED ssize_t __recv_chk(int fd, void *to, size_t size, size_t space, int flags)
{
    return RECEIVE(fd, size, REAL(__recv_chk)(fd, to, size, space, flags));
}

PRELOADED ssize_t __recvfrom_chk(int fd, void *to, size_t size, size_t space, int flags, struct sockaddr *address,
                                 socklen_t *space_of_address)
{
    return RECEIVE(fd, size, REAL(__recvfrom_chk)(fd, to, size, space, flags, address, space_of_address));
}

/* -- sending -- */

/* Who raises SIGPIPE for EPIPE: the kernel does it for a write to a pipe or socket, and no one for MSG_NOSIGNAL. */
typedef enum { BY_KERNEL, BY_LIBRARY, BY_NONE } signaller;

static signaller signaller_of(int flags)
{
    return flags & MSG_NOSIGNAL ? BY_NONE : BY_LIBRARY;
}

/* The result of a send: the NIC's error for a broken pipe. SIGPIPE comes as from the kernel's TCP: not for the error
   that ended the connection, but for what is sent after it was reported. */
static ssize_t sent(int fd, ssize_t result, signaller signals)
{
    if (result >= 0 || errno != EPIPE)
        return result;
    const int error = error_of(fd);
    errno = error ? error : EPIPE;
    if (signals == BY_LIBRARY && errno == EPIPE)
        pthread_kill(pthread_self(), SIGPIPE);
    return -1;
}

/* The result of a send on a socket that is not connected. */
static ssize_t not_sent(int error, signaller signals)
{
    if (signals != BY_NONE && error == EPIPE)
        pthread_kill(pthread_self(), SIGPIPE);
    return fail(error);
}

#define SEND(fd, signals, call)                                                               \
    ({                                                                                        \
        const int unconnected = sp_check(fd, EPIPE);                                          \
        unconnected ? not_sent(unconnected, signals) : sent(fd, call, signals);               \
    })

/* Urgent data is refused (RFC 6093 advises against it), and TCP Fast Open as by a kernel that has it disabled. */
static bool refuses(int fd, int flags)
{
    sp_stream stream;

    if (!(flags & (MSG_OOB | MSG_FASTOPEN)) || !sp_stream_of(fd, &stream))
        return false;
    errno = EOPNOTSUPP;
    return true;
}

PRELOADED ssize_t write(int fd, const void *from, size_t size)
{
    return SEND(fd, BY_KERNEL, REAL(write)(fd, from, size));
}

PRELOADED ssize_t writev(int fd, const struct iovec *parts, int count)
{
    return SEND(fd, BY_KERNEL, REAL(writev)(fd, parts, count));
}

PRELOADED ssize_t send(int fd, const void *from, size_t size, int flags)
{
    if (refuses(fd, flags))
        return -1;
    return SEND(fd, signaller_of(flags), REAL(send)(fd, from, size, flags | MSG_NOSIGNAL));
}

PRELOADED ssize_t sendto(int fd, const void *from, size_t size, int flags, const struct sockaddr *to, socklen_t space)
{
    sp_stream stream;

    if (to && sp_stream_of(fd, &stream)) { /* TCP ignores it on a connection */
        to = NULL;
        space = 0;
    }
    if (refuses(fd, flags))
        return -1;
    return SEND(fd, signaller_of(flags), REAL(sendto)(fd, from, size, flags | MSG_NOSIGNAL, to, space));
}

PRELOADED ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (refuses(fd, flags))
        return -1;
    return SEND(fd, signaller_of(flags), REAL(sendmsg)(fd, message, flags | MSG_NOSIGNAL));
}

PRELOADED int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    if (refuses(fd, flags))
        return -1;
    return (int)SEND(fd, signaller_of(flags), REAL(sendmmsg)(fd, messages, count, flags | MSG_NOSIGNAL));
}

PRELOADED ssize_t sendfile(int fd, int from, off_t *at, size_t size)
{
    return SEND(fd, BY_KERNEL, REAL(sendfile)(fd, from, at, size));
}

PRELOADED ssize_t sendfile64(int fd, int from, off64_t *at, size_t size)
{
    return SEND(fd, BY_KERNEL, REAL(sendfile64)(fd, from, at, size));
}

PRELOADED ssize_t splice(int from, off64_t *from_at, int fd, off64_t *at, size_t size, unsigned flags)
{
    const int unconnected = sp_check(from, ENOTCONN);
    ssize_t moved =
        unconnected ? fail(unconnected) : SEND(fd, BY_KERNEL, REAL(splice)(from, from_at, fd, at, size, flags));

    if (!unconnected && moved <= 0 && size && failed(from, &moved))
        moved = SEND(fd, BY_KERNEL, REAL(splice)(from, from_at, fd, at, size, flags));
    return moved;
}

/* -- state -- */

/* Bytes written and not acknowledged by the peer, or never sent: in the descriptor, and in the NIC. Returns 0 or
   -errno. */
static int queued_output(const sp_stream *stream, unsigned long request, int *count)
{
    sp_status status;
    const int error = sp_query(stream, false, &status);

    if (error && error != -ECONNRESET)
        return error;
    if (!strcmp(status.state, "LISTEN"))
        return -EINVAL;
    if (!count)
        return -EFAULT;
    const int64_t bytes = request == SIOCOUTQ ? status.send_queue : status.notsent;
    *count = bytes > INT_MAX ? INT_MAX : (int)bytes;
    return 0;
}

PRELOADED int ioctl(int fd, unsigned long request, ...)
{
    sp_stream stream;
    va_list arguments;

    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (sp_is_interface_request(request))
        return sp_interface_request(fd, request, argument);
    if ((request == SIOCOUTQ || request == SIOCOUTQNSD) && sp_stream_of(fd, &stream))
        return sp_result(queued_output(&stream, request, argument));
    return REAL(ioctl)(fd, request, argument);
}

PRELOADED int shutdown(int fd, int how)
{
    sp_stream stream;
    sp_status status;

    if (!sp_stream_of(fd, &stream))
        return REAL(shutdown)(fd, how);
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
        return sp_result(-EINVAL);
    const int error = sp_query(&stream, false, &status);
    if (error || !strcmp(status.state, "BOUND") || !strcmp(status.state, "CLOSED") || sp_is_connecting(&status))
        return sp_result(error && error != -ECONNRESET ? error : -ENOTCONN);
    if (!strcmp(status.state, "LISTEN")) /* which ends with its input, and has no output */
        return how == SHUT_WR ? 0 : REAL(shutdown)(fd, SHUT_RDWR);
    sp_check(fd, 0);
    return REAL(shutdown)(fd, how);
}
