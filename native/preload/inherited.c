/* The preloaded library's shared control connection: what a process leaves to those that it starts.

   A child that has changed its user or its root directory cannot connect to the NIC's control socket. So the first process
   opens a second connection, which children inherit, through fork and exec alike: at a number of its own, since a new
   program has nothing but the numbers of its descriptors. By it a child gets a control connection with the rights that
   its descriptors give it (ShareConnection and Inherit in softnic/ipc/control.py). Its name tells the NIC, since a child
   may be given another one; one of another NIC, or of a NIC that has ended, is replaced. */
#include "preload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { SHARED_FD = 499 }; /* just below the control connection, above the numbers that programs expect to get next */

static const char prefix[] = "softnic-shared/"; /* after the zero byte of an abstract name */

/* A number for the NIC's path (FNV-1a). */
static uint32_t nic_number(void)
{
    uint32_t number = 2166136261u;

    for (const char *at = sp_nic(); *at; at++)
        number = (number ^ (uint8_t)*at) * 16777619u;
    return number;
}

/* Whether there is a shared connection; `number`: that of its NIC. */
static bool is_shared(unsigned long *number)
{
    struct sockaddr_un name = {0};
    socklen_t size = sizeof name - 1; /* the zero byte at the end stays */
    char *end;

    if (REAL(getsockname)(SHARED_FD, (void *)&name, &size) || name.sun_family != AF_UNIX || name.sun_path[0] ||
        memcmp(name.sun_path + 1, prefix, sizeof prefix - 1))
        return false;
    *number = strtoul(name.sun_path + sizeof prefix, &end, 16);
    return *end == '/';
}

bool sp_may_inherit(void)
{
    struct pollfd poll_fd = {SHARED_FD, 0, 0};
    unsigned long number;

    return is_shared(&number) && number == nic_number() && !REAL(poll)(&poll_fd, 1, 0); /* else the NIC has ended */
}

/* Names a connection by its NIC, and by its inode, which no other socket has. Returns 0 or -1. */
static int name_connection(int fd)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct stat found;

    if (fstat(fd, &found))
        return -1;
    const int size = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s%x/%llu", prefix, nic_number(),
                              (unsigned long long)found.st_ino);
    return REAL(bind)(fd, (void *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)size);
}

void sp_share(int fd)
{
    static const char request[] = "{\"type\":\"ShareConnection\"}", done[] = "{\"type\":\"Done\"}";
    char reply[sizeof done];
    unsigned long number;
    int made;

    if (!name_connection(fd) && REAL(send)(fd, request, sizeof request - 1, MSG_NOSIGNAL) == sizeof request - 1 &&
        REAL(recv)(fd, reply, sizeof reply, 0) == sizeof done - 1 && !memcmp(reply, done, sizeof done - 1)) {
        made = is_shared(&number) ? dup2(fd, SHARED_FD) : fcntl(fd, F_DUPFD, SHARED_FD);
        if (made > SHARED_FD)
            REAL(close)(made); /* its number is another file's, so children cannot find it */
    }
    REAL(close)(fd);
}

int sp_inherit(void)
{
    static const char request[] = "{\"type\":\"Inherit\"}";
    int ends[2];

    if (!sp_may_inherit() || REAL(socketpair)(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return -1;
    const bool is_sent = sp_send_with(SHARED_FD, request, sizeof request - 1, ends[1]) == sizeof request - 1;
    REAL(close)(ends[1]);
    if (is_sent)
        return ends[0];
    REAL(close)(ends[0]);
    return -1;
}
