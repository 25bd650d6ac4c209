/* Streams of the preloaded library: their descriptors, how these are named, and connects without a known outcome.

   A connecting descriptor is not writable, since its send buffer is filled until the NIC has read that
   (softnic/ipc/control.py). The buffer is small meanwhile. Descriptors that connect are marked in a table of the process,
   so that the buffer grows again when the program learns of the outcome or writes; a process that inherits a connecting
   descriptor finds the outcome when it asks for SO_ERROR. So are those that are not connected, since their pair is. A mark
   has the inode, and is of no effect for another file of this number. The mark that nothing is to be checked has none, so
   that it costs one load; where a number is reused without a call of `close` or `dup2`, that check is missing. */
#include "preload/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { STREAM_BUFFER = 512 << 10 };

static const char prefix[] = "softnic/"; /* after the zero byte of an abstract name */

void *sp_real(const char *name, _Atomic(void *) *known)
{
    void *found = atomic_load_explicit(known, memory_order_relaxed);

    if (!found) {
        found = dlsym(RTLD_NEXT, name);
        if (!found)
            abort();
        atomic_store_explicit(known, found, memory_order_relaxed);
    }
    return found;
}

int sp_result(int result)
{
    if (result >= 0)
        return result;
    errno = -result;
    return -1;
}

/* -- marks -- */

_Atomic uint64_t sp_marks[SP_MARKS]; /* kind, inode, size; pages that are not used take no memory */

static uint32_t inode_of(int fd)
{
    struct stat found;

    return fstat(fd, &found) ? 0 : (uint32_t)found.st_ino;
}

static void mark(int fd, sp_mark kind, uint32_t size)
{
    if (fd >= 0 && fd < SP_MARKS)
        sp_marks[fd] = kind ? (uint64_t)kind << 62 | (uint64_t)(size >> 2) << 32 | inode_of(fd) : SP_PLAIN;
}

void sp_mark_connected(int fd)
{
    mark(fd, SP_NOTHING, 0);
}

void sp_forget(int fd)
{
    if (fd < 0 || fd >= SP_MARKS) /* programs close such numbers, too */
        return;
    if (sp_raw_mark(fd) != SP_NOT_LOOKED_AT && !sp_is_vforked()) /* the marks are those of its parent, which keeps it */
        sp_marks[fd] = SP_NOT_LOOKED_AT;
}

/* The size of the send buffer that a mark has. */
static int size_of(uint64_t marked)
{
    return (int)(marked >> 32 << 2);
}

sp_mark sp_read_mark(int fd)
{
    const int before = errno;
    const uint64_t marked = sp_marks[fd];
    const bool is_current = (uint32_t)marked == inode_of(fd);

    if (!is_current)
        sp_marks[fd] = SP_NOT_LOOKED_AT; /* of a descriptor that was closed */
    errno = before;
    return is_current ? (sp_mark)(marked >> 62) : SP_NOTHING;
}

PRELOADED void softnic_preload_ignore(int fd)
{
    mark(fd, SP_IGNORED, 0);
}

/* -- names of descriptors -- */

bool sp_stream_of(int fd, sp_stream *stream)
{
    const int before = errno;
    struct sockaddr_un name = {0};
    socklen_t size = sizeof name - 1; /* the zero byte at the end stays */
    char *end;

    if (!sp_nic())
        return false;
    const int failed = REAL(getsockname)(fd, (void *)&name, &size);
    errno = before;
    if (failed || name.sun_family != AF_UNIX || size <= offsetof(struct sockaddr_un, sun_path) + sizeof prefix)
        return false;
    if (name.sun_path[0] || memcmp(name.sun_path + 1, prefix, sizeof prefix - 1))
        return false;
    stream->number = strtoll(name.sun_path + sizeof prefix, &end, 10);
    stream->fd = fd;
    stream->six = !strcmp(end, "/6");
    const bool is_stream = stream->number > 0 && sp_marked(fd) != SP_IGNORED;
    errno = before;
    return is_stream;
}

int sp_name(int fd, const sp_stream *stream)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int size = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s%lld%s", prefix,
                              (long long)stream->number, stream->six ? "/6" : "");

    return REAL(bind)(fd, (void *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)size)
               ? -errno
               : 0;
}

/* Passes the NIC its end of a pair, and says what the other one is known by. Returns 0 or -errno. */
static int request_stream(char reply[static SP_REPLY], const int ends[static 2])
{
    struct stat found;
    uint64_t cookie = 0;
    socklen_t size = sizeof cookie;

    if (fstat(ends[0], &found))
        return -errno;
    REAL(getsockopt)(ends[0], SOL_SOCKET, SO_COOKIE, &cookie, &size);
    return sp_call(reply, ends[1], "{\"type\":\"Open\",\"inode\":%llu,\"cookie\":%llu}", (unsigned long long)found.st_ino,
                   (unsigned long long)cookie);
}

int sp_open(int flags, bool six, sp_stream *stream)
{
    char reply[SP_REPLY];
    int ends[2];

    if (REAL(socketpair)(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -errno;
    int error = request_stream(reply, ends);
    close(ends[1]);
    if (!error) {
        *stream = (sp_stream){sp_integer(sp_member(reply, "stream"), 0), ends[0], six};
        error = sp_name(ends[0], stream);
    }
    if (error) {
        close(ends[0]);
        return error;
    }
    if (!(flags & SOCK_CLOEXEC))
        fcntl(ends[0], F_SETFD, 0);
    if (flags & SOCK_NONBLOCK)
        fcntl(ends[0], F_SETFL, O_RDWR | O_NONBLOCK);
    mark(ends[0], SP_UNCONNECTED, 0);
    return ends[0];
}

static int option(int fd, int level, int name)
{
    int value = 0;
    socklen_t size = sizeof value;

    return REAL(getsockopt)(fd, level, name, &value, &size) ? -1 : value;
}

bool sp_is_six(int fd)
{
    const int before = errno;
    bool is = option(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET6 && option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM &&
              option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP;

    is = is && !option(fd, IPPROTO_IPV6, IPV6_V6ONLY);
    errno = before;
    return is;
}

/* -- connects -- */

int sp_block(int fd)
{
    static const char filler[1 << 14];
    const int size = option(fd, SOL_SOCKET, SO_SNDBUF);

    REAL(setsockopt)(fd, SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int)); /* a small buffer is filled quickly */
    while (REAL(send)(fd, filler, sizeof filler, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    return size;
}

void sp_unblock(int fd, int size)
{
    size /= 2; /* the kernel returns twice what was set */
    REAL(setsockopt)(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

void sp_mark_connect(int fd, bool is_pending)
{
    mark(fd, is_pending ? SP_PENDING : SP_UNCONNECTED, (uint32_t)sp_wanted_size(fd));
}

void sp_mark_unconnected(int fd, int size)
{
    mark(fd, SP_UNCONNECTED, (uint32_t)size);
}

int sp_wanted_size(int fd)
{
    return sp_marked(fd) >= SP_UNCONNECTED ? size_of(sp_marks[fd]) : 0;
}

bool sp_set_wanted_size(int fd, int size)
{
    const sp_mark kind = sp_marked(fd);

    if (kind >= SP_UNCONNECTED)
        mark(fd, kind, size < 0 ? 0 : (uint32_t)size);
    return kind == SP_PENDING;
}

/* Lets the send buffer of a connected descriptor grow. */
static void end_pending(int fd)
{
    const int wanted = sp_wanted_size(fd), size = wanted ? wanted : STREAM_BUFFER;

    mark(fd, SP_NOTHING, 0);
    REAL(setsockopt)(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

bool sp_is_connecting(const sp_status *status)
{
    return !strncmp(status->state, "SYN-", 4);
}

int sp_settle(int fd, const sp_stream *stream)
{
    sp_status status;
    const int size = sp_wanted_size(fd), error = sp_query(stream, true, &status);

    if (!error && sp_is_connecting(&status))
        return -EALREADY;
    if (sp_raw_mark(fd) != SP_PLAIN) { /* else it was known to be connected */
        if (error || status.has_peer)
            end_pending(fd);
        if (!error && status.error)
            mark(fd, SP_UNCONNECTED, (uint32_t)size);
    }
    return error ? error : -status.error;
}

int sp_confirm(int fd, int otherwise)
{
    const int before = errno;
    struct pollfd poll_fd = {fd, POLLOUT, 0};
    const sp_mark kind = sp_marked(fd); /* SP_NOTHING: not looked at, or marked as plain by another thread just now */
    sp_stream stream;
    sp_status status = {0};
    int error = 0;

    if (kind == SP_IGNORED)
        return 0;
    if (!sp_stream_of(fd, &stream)) {
        mark(fd, SP_NOTHING, 0);
    } else if (REAL(poll)(&poll_fd, 1, 0) < 1 && kind == SP_PENDING) {
        /* still connecting */
    } else if (sp_query(&stream, false, &status)) {
        if (kind == SP_NOTHING)
            mark(fd, SP_NOTHING, 0);
    } else {
        /* A connection that has ended has hung up; a connect that has failed has not. */
        const bool failed = !strcmp(status.state, "CLOSED") && !(poll_fd.revents & POLLHUP);
        if (!status.has_peer || failed) {
            error = failed ? -sp_settle(fd, &stream) : 0;
            error = error > 0 ? error : otherwise;
        } else if (!sp_is_connecting(&status)) {
            if (kind == SP_NOTHING)
                mark(fd, SP_NOTHING, 0); /* its buffer has the size that it shall have */
            else
                end_pending(fd);
        }
    }
    errno = before;
    return error;
}
