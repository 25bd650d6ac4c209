/* Which NIC the program has, and how a message goes to it. */
#include "preload/preload.h"

#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

const char *sp_nic(void)
{
    static _Atomic(const char *) path;
    const char *known = path;

    if (!known) {
        const char *given = getenv("SOFTNIC_NIC");
        known = given && *given && strlen(given) < sizeof((struct sockaddr_un *)NULL)->sun_path ? strdup(given) : "";
        path = known = known ? known : "";
    }
    return *known ? known : NULL;
}

ssize_t sp_send_with(int to, const char *text, size_t size, int fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } rights = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec part = {(void *)text, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        memcpy(CMSG_DATA(&rights.header), &fd, sizeof fd);
        message.msg_control = &rights;
        message.msg_controllen = sizeof rights.space;
    }
    return REAL(sendmsg)(to, &message, MSG_NOSIGNAL);
}
