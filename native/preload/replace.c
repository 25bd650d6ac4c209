/* Replacement in the preloaded library: another stream under the same descriptor, with the same options.

   It takes the place of a kernel's TCP socket of IPv6 that turns out to be for IPv4, and of a stream that has ended and is
   to connect again. Options that differ from those of a new socket of the same kind were set by the program. */
#include "preload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

static const int options[][2] = {
    {SOL_SOCKET, SO_REUSEADDR},       {SOL_SOCKET, SO_REUSEPORT},     {SOL_SOCKET, SO_KEEPALIVE},
    {SOL_SOCKET, SO_LINGER},          {SOL_SOCKET, SO_OOBINLINE},     {SOL_SOCKET, SO_RCVLOWAT},
    {SOL_SOCKET, SO_RCVTIMEO},        {SOL_SOCKET, SO_SNDTIMEO},      {SOL_SOCKET, SO_RCVBUF},
    {IPPROTO_IPV6, IPV6_TCLASS},      {IPPROTO_IPV6, IPV6_UNICAST_HOPS},
    {IPPROTO_IP, IP_TOS},             {IPPROTO_IP, IP_TTL},           {IPPROTO_IP, IP_MTU_DISCOVER},
    {IPPROTO_IP, IP_RECVERR},         {IPPROTO_TCP, TCP_NODELAY},     {IPPROTO_TCP, TCP_CORK},
    {IPPROTO_TCP, TCP_KEEPIDLE},      {IPPROTO_TCP, TCP_KEEPINTVL},   {IPPROTO_TCP, TCP_KEEPCNT},
    {IPPROTO_TCP, TCP_USER_TIMEOUT},  {IPPROTO_TCP, TCP_CONGESTION},  {IPPROTO_TCP, TCP_QUICKACK},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT},  {IPPROTO_TCP, TCP_MAXSEG},      {IPPROTO_TCP, TCP_SYNCNT},
    {IPPROTO_TCP, TCP_LINGER2},       {IPPROTO_TCP, TCP_WINDOW_CLAMP}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT},
    {SP_SOL_NIC, SP_NIC_CODEC},       {SP_SOL_NIC, SP_NIC_BLOCKS},
};

/* Sets an option of `to` as `from` has it, if that is not what `unset` has. */
static void copy_option(int from, int to, int unset, const int option[static 2])
{
    union {
        char bytes[64];
        int number;
    } value = {{0}}, usual = {{0}};
    socklen_t size = sizeof value, usual_size = sizeof usual;

    /* Without REAL: these are the NIC's where the descriptor is. */
    if (getsockopt(from, option[0], option[1], &value, &size) ||
        (!getsockopt(unset, option[0], option[1], &usual, &usual_size) && size == usual_size &&
         !memcmp(&value, &usual, size)))
        return;
    if (option[0] == SOL_SOCKET && (option[1] == SO_SNDBUF || option[1] == SO_RCVBUF))
        value.number /= 2; /* the kernel returns twice what was set */
    setsockopt(to, option[0], option[1], &value, size);
}

/* Copies SO_SNDBUF. While a stream is not connected the NIC may have made the buffer small, so what counts is noted. */
static void copy_send_buffer(int from, int to, int unset)
{
    static const int send_buffer[] = {SOL_SOCKET, SO_SNDBUF};
    const int size = sp_wanted_size(from);

    if (sp_marked(from) < SP_UNCONNECTED)
        copy_option(from, to, unset, send_buffer);
    else if (size)
        setsockopt(to, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

void sp_inherit_options(int listening, int accepted)
{
    static const int own[][2] = {{SOL_SOCKET, SO_RCVTIMEO},  {SOL_SOCKET, SO_SNDTIMEO}, {SOL_SOCKET, SO_RCVBUF},
                                 {SOL_SOCKET, SO_OOBINLINE}, {SOL_SOCKET, SO_RCVLOWAT}};
    const int size = sp_wanted_size(listening);

    for (size_t index = 0; index < sizeof own / sizeof *own; index++)
        copy_option(listening, accepted, accepted, own[index]);
    if (size)
        REAL(setsockopt)(accepted, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

int sp_replace(int fd, bool six, sp_stream *stream)
{
    const int flags = fcntl(fd, F_GETFL), on_exec = fcntl(fd, F_GETFD);
    const bool is_kernels = !sp_stream_of(fd, stream);
    const int made = sp_open(flags & O_NONBLOCK ? SOCK_NONBLOCK | SOCK_CLOEXEC : SOCK_CLOEXEC, six, stream);
    const int unset = is_kernels ? REAL(socket)(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP) : -1;

    if (made < 0) {
        close(unset);
        return made;
    }
    for (size_t index = 0; index < sizeof options / sizeof *options; index++)
        copy_option(fd, made, is_kernels ? unset : made, options[index]);
    copy_send_buffer(fd, made, is_kernels ? unset : made);
    close(unset);
    const int size = sp_wanted_size(made);
    const int result = REAL(dup3)(made, fd, on_exec & FD_CLOEXEC ? O_CLOEXEC : 0) < 0 ? -errno : 0;
    close(made);
    stream->fd = fd;
    sp_mark_unconnected(fd, size);
    return result;
}
