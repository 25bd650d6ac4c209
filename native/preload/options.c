/* Options and names of the preloaded library's sockets: the NIC's where it has them, as it answers for each; the
   descriptor's own where they concern the transfer of bytes between program and NIC (time limits, buffers). */
#include "preload/preload.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

enum { TEXT_OPTION = 64, DEFAULT_MSS = 536 };

static bool is_text(int level, int name)
{
    return (level == IPPROTO_TCP && name == TCP_CONGESTION) || (level == SP_SOL_NIC && name == SP_NIC_CODEC);
}

/* Whether an option at SOL_SOCKET is the NIC's; the others are the descriptor's. */
static bool is_nics(int level, int name)
{
    if (level != SOL_SOCKET)
        return true;
    return name == SO_KEEPALIVE || name == SO_LINGER || name == SO_REUSEADDR || name == SO_REUSEPORT ||
           name == SO_BINDTODEVICE;
}

/* Options of IPv6 that programs set on a socket for both families are those of IPv4. */
static void translate(const sp_stream *stream, int *level, int *name)
{
    if (!stream->six || *level != IPPROTO_IPV6 || (*name != IPV6_TCLASS && *name != IPV6_UNICAST_HOPS))
        return;
    *level = IPPROTO_IP;
    *name = *name == IPV6_TCLASS ? IP_TOS : IP_TTL;
}

/* Writes an option's value for the control protocol. Returns 0 or -errno. */
static int to_protocol(int level, int name, const void *value, socklen_t size, char text[static TEXT_OPTION + 3])
{
    int number = 0;

    if (size && !value)
        return -EFAULT;
    if (is_text(level, name)) {
        const char *from = value;
        size_t length = size ? strnlen(from, size) : 0;
        if (length > TEXT_OPTION)
            return -EINVAL;
        for (size_t index = 0; index < length; index++)
            if (from[index] < ' ' || from[index] > '~' || from[index] == '"' || from[index] == '\\')
                return -EINVAL;
        sprintf(text, "\"%.*s\"", (int)length, from ? from : "");
        return 0;
    }
    if (level == SOL_SOCKET && name == SO_LINGER) {
        struct linger linger;
        if (size < sizeof linger)
            return -EINVAL;
        memcpy(&linger, value, sizeof linger);
        if (linger.l_onoff)
            number = linger.l_linger >= 0 && linger.l_linger < INT_MAX ? linger.l_linger + 1 : INT_MAX;
    } else if (size >= sizeof number) {
        memcpy(&number, value, sizeof number);
    } else if (size && level == IPPROTO_IP) {
        number = *(const unsigned char *)value;
    } else {
        return -EINVAL;
    }
    sprintf(text, "%d", number);
    return 0;
}

static int set_option(const sp_stream *stream, int level, int name, const void *value, socklen_t size)
{
    char reply[SP_REPLY], text[TEXT_OPTION + 3];
    const int error = to_protocol(level, name, value, size, text);

    if (error)
        return error;
    if (level == SOL_SOCKET && name == SO_LINGER && strcmp(text, "0") && strcmp(text, "1"))
        sp_use_linger();
    return sp_ask(reply, stream, "{\"type\":\"SetOption\",\"stream\":%lld,\"level\":%d,\"name\":%d,\"value\":%s}",
                  (long long)stream->number, level, name, text);
}

PRELOADED int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    sp_stream stream;

    if (!sp_stream_of(fd, &stream))
        return REAL(setsockopt)(fd, level, name, value, size);
    if (stream.six && level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
        return sp_result(-EINVAL); /* too late: it is bound, or connected */
    translate(&stream, &level, &name);
    if (is_nics(level, name))
        return sp_result(set_option(&stream, level, name, value, size));
    if (name == SO_SNDBUF && size >= sizeof(int)) {
        int wanted;
        memcpy(&wanted, value, sizeof wanted);
        if (sp_set_wanted_size(fd, wanted)) /* else it would become writable */
            return 0;
    }
    return REAL(setsockopt)(fd, level, name, value, size);
}

/* Copies an option's value, cut to the space there is, as the kernel does. */
static int give(const void *from, size_t length, void *value, socklen_t *size)
{
    if (!size || (int)*size < 0 || (*size && !value))
        return -EFAULT;
    if (*size > length)
        *size = (socklen_t)length;
    memcpy(value, from, *size);
    return 0;
}

static int give_number(int number, void *value, socklen_t *size)
{
    return give(&number, sizeof number, value, size);
}

static uint8_t state_number(const char *state)
{
    static const char *const names[] = {"ESTABLISHED", "SYN-SENT", "SYN-RECEIVED", "FIN-WAIT-1", "FIN-WAIT-2",
                                        "TIME-WAIT", "CLOSED", "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING"};

    for (unsigned index = 0; index < sizeof names / sizeof *names; index++)
        if (!strcmp(state, names[index]))
            return (uint8_t)(index + 1);
    return TCP_CLOSE;
}

static uint32_t microseconds(double seconds)
{
    return seconds <= 0 ? 0 : seconds >= 4294 ? UINT32_MAX : (uint32_t)(seconds * 1e6 + 0.5);
}

/* The start of Linux's struct tcp_info, with which the C library's ends; fields that a NIC does not have are 0. */
static int give_info(const sp_status *status, void *value, socklen_t *size)
{
    const uint32_t mss = status->mss > 0 ? (uint32_t)status->mss : 0;
    struct tcp_info info = {
        .tcpi_state = state_number(status->state),
        .tcpi_rto = microseconds(status->rto),
        .tcpi_rtt = microseconds(status->srtt),
        .tcpi_rttvar = microseconds(status->rttvar),
        .tcpi_snd_mss = mss,
        .tcpi_rcv_mss = mss,
        .tcpi_advmss = mss,
        .tcpi_unacked = mss ? (uint32_t)((status->send_queue + mss - 1) / mss) : 0,
        .tcpi_snd_cwnd = mss ? (uint32_t)(status->cwnd / mss) : 0,
        .tcpi_total_retrans = (uint32_t)status->retransmits,
    };

    return give(&info, sizeof info, value, size);
}

/* The outcome of a connect, or the error that ended the stream; both are reported once. */
static int pending_error(int fd, const sp_stream *stream)
{
    int own = 0;
    socklen_t size = sizeof own;

    REAL(getsockopt)(fd, SOL_SOCKET, SO_ERROR, &own, &size); /* clears the pair's */
    const int error = -sp_settle(fd, stream);
    return error == EALREADY ? 0 : error;
}

static int from_nic(const sp_stream *stream, int level, int name, void *value, socklen_t *size)
{
    char reply[SP_REPLY], text[TEXT_OPTION];
    const int error = sp_ask(reply, stream, "{\"type\":\"QueryOption\",\"stream\":%lld,\"level\":%d,\"name\":%d}",
                             (long long)stream->number, level, name);

    if (error)
        return error;
    const char *found = sp_member(reply, "value");
    if (sp_text(found, text, sizeof text))
        return give(text, strlen(text) + 1, value, size);
    const int number = (int)sp_integer(found, 0);
    if (level == SOL_SOCKET && name == SO_LINGER)
        return give(&(struct linger){number > 0, number > 0 ? number - 1 : 0}, sizeof(struct linger), value, size);
    return give_number(number, value, size);
}

static int get_option(int fd, const sp_stream *stream, int level, int name, void *value, socklen_t *size)
{
    sp_status status;

    if (level == IPPROTO_TCP && (name == TCP_INFO || name == TCP_MAXSEG)) {
        const int error = sp_query(stream, false, &status);
        if (error)
            return error;
        if (name == TCP_INFO)
            return give_info(&status, value, size);
        if (status.mss)
            return give_number((int)status.mss, value, size);
        const int given = from_nic(stream, level, name, value, size); /* before it connects */
        int most = 0;
        if (!given && *size >= sizeof most)
            memcpy(&most, value, sizeof most);
        return given || most ? given : give_number(DEFAULT_MSS, value, size);
    }
    if (level != SOL_SOCKET || is_nics(level, name))
        return from_nic(stream, level, name, value, size);
    switch (name) {
    case SO_ERROR:
        return give_number(pending_error(fd, stream), value, size);
    case SO_DOMAIN:
        return give_number(stream->six ? AF_INET6 : AF_INET, value, size);
    case SO_PROTOCOL:
        return give_number(IPPROTO_TCP, value, size);
    case SO_ACCEPTCONN: {
        const int error = sp_query(stream, false, &status);
        return error ? error : give_number(!strcmp(status.state, "LISTEN"), value, size);
    }
    default:
        return REAL(getsockopt)(fd, level, name, value, size) ? -errno : 0;
    }
}

PRELOADED int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    sp_stream stream;

    if (!sp_stream_of(fd, &stream))
        return REAL(getsockopt)(fd, level, name, value, size);
    translate(&stream, &level, &name);
    if (stream.six && level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
        return sp_result(give_number(0, value, size));
    return sp_result(get_option(fd, &stream, level, name, value, size));
}

/* -- addresses -- */

PRELOADED int getsockname(int fd, struct sockaddr *address, socklen_t *size)
{
    sp_stream stream;
    sp_status status;

    if (!sp_stream_of(fd, &stream))
        return REAL(getsockname)(fd, address, size);
    const int error = sp_query(&stream, false, &status);
    if (!error)
        sp_format(&status.local, stream.six, address, size);
    return sp_result(error);
}

PRELOADED int getpeername(int fd, struct sockaddr *address, socklen_t *size)
{
    sp_stream stream;
    sp_status status;

    if (!sp_stream_of(fd, &stream))
        return REAL(getpeername)(fd, address, size);
    const int error = sp_query(&stream, false, &status);
    if (error)
        return sp_result(error == -ECONNRESET ? -ENOTCONN : error);
    if (!status.has_peer || sp_is_connecting(&status) || !strcmp(status.state, "CLOSED"))
        return sp_result(-ENOTCONN);
    sp_format(&status.peer, stream.six, address, size);
    return 0;
}
