/* The preloaded library's control connection: one of the process, opened when first needed (softnic/ipc/control.py).

   The program does not know of the descriptor and may close it, so its number is checked for the same file before each
   use. A forked child has its own connection, and a child of vfork, which shares its parent's memory, one for each
   request. While a request is made no signal handler runs in its thread, since a handler may make calls too. */
#include "preload.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_S = 4, LEAST_FD = 500 }; /* above the numbers that programs expect to get next, or use in select */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1;
static struct stat identity;
static pid_t process;

static bool is_ours(void)
{
    struct stat now;

    return connection >= 0 && !fstat(connection, &now) && now.st_ino == identity.st_ino && now.st_dev == identity.st_dev;
}

static void disconnect(void)
{
    if (is_ours())
        close(connection);
    connection = -1;
}

static void after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    disconnect();
    process = getpid();
}

__attribute__((constructor)) static void prepare(void)
{
    process = getpid();
    if (sp_nic())
        pthread_atfork(NULL, NULL, after_fork);
}

bool sp_is_vforked(void)
{
    return process != getpid();
}

int64_t sp_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

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

/* Returns 0 or -errno. */
static int make_connection(void)
{
    const struct timeval timeout = {TIMEOUT_S, 0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int made = REAL(socket)(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (made < 0)
        return -errno;
    connection = fcntl(made, F_DUPFD_CLOEXEC, LEAST_FD);
    if (connection < 0)
        connection = made;
    else
        close(made);
    strcpy(address.sun_path, sp_nic());
    REAL(setsockopt)(connection, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    REAL(setsockopt)(connection, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (!fstat(connection, &identity) && !REAL(connect)(connection, (void *)&address, sizeof address))
        return 0;
    const int error = errno == EACCES || errno == EPERM ? EACCES : ENETDOWN;
    close(connection);
    connection = -1;
    return -error;
}

static ssize_t send_request(const char *text, size_t size, int fd)
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
    return REAL(sendmsg)(connection, &message, MSG_NOSIGNAL);
}

/* Returns the size of the reply, or -errno. */
static ssize_t exchange(const char *text, size_t size, int fd, char *reply)
{
    if (!is_ours())
        connection = -1; /* the program has closed it */
    for (int attempt = 0; attempt < 2; attempt++) {
        if (connection < 0) {
            const int error = make_connection();
            if (error)
                return error;
        }
        if (send_request(text, size, fd) == (ssize_t)size) {
            const ssize_t got = REAL(recv)(connection, reply, SP_REPLY - 1, 0);
            if (got > 0)
                return got;
            break; /* the NIC may have executed it */
        }
        disconnect(); /* another NIC may have replaced it; the request was not sent */
    }
    disconnect();
    return -ENETDOWN;
}

/* Returns 0, or -errno for a reply that is an error. */
static int outcome(const char *reply)
{
    char type[16], message[SP_TEXT];

    if (!sp_text(sp_member(reply, "type"), type, sizeof type))
        return -EPROTO;
    if (strcmp(type, "Failed"))
        return 0;
    if (getenv("SOFTNIC_PRELOAD_ERRORS") && sp_text(sp_member(reply, "message"), message, sizeof message))
        dprintf(2, "softnic: %s\n", message);
    const int64_t error = sp_integer(sp_member(reply, "errno"), EIO);
    return error > 0 && error < 4096 ? (int)-error : -EIO;
}

/* As exchange, in a child of vfork: the parent's connection stays as it is. */
static ssize_t exchange_apart(const char *text, size_t size, int fd, char *reply)
{
    const struct stat parents_identity = identity;
    const int parents = connection;

    connection = -1;
    const ssize_t got = exchange(text, size, fd, reply);
    disconnect();
    connection = parents;
    identity = parents_identity;
    return got;
}

int sp_call(char reply[static SP_REPLY], int fd, const char *format, ...)
{
    const int before = errno;
    char text[SP_TEXT];
    sigset_t all, mask;
    va_list arguments;
    int state;

    va_start(arguments, format);
    const int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size < 0 || size >= (int)sizeof text)
        return -EINVAL;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pthread_mutex_lock(&lock);
    const ssize_t got = (sp_is_vforked() ? exchange_apart : exchange)(text, (size_t)size, fd, reply);
    pthread_mutex_unlock(&lock);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    pthread_setcancelstate(state, NULL);
    errno = before;
    reply[got > 0 ? got : 0] = 0;
    return got > 0 ? outcome(reply) : (int)got;
}

int sp_query(const sp_stream *stream, bool clear, sp_status *status)
{
    char reply[SP_REPLY];
    const int error = sp_call(reply, -1, "{\"type\":\"QueryStream\",\"stream\":%lld,\"clear\":%s}",
                              (long long)stream->number, clear ? "true" : "false");

    memset(status, 0, sizeof *status);
    if (error)
        return error == -EBADF ? -ECONNRESET : error; /* the NIC no longer knows it */
    if (!sp_text(sp_member(reply, "state"), status->state, sizeof status->state) ||
        !sp_endpoint(sp_member(reply, "local"), &status->local))
        return -EPROTO;
    const char *closed = sp_member(reply, "closed");
    status->is_closed = closed && *closed == 't';
    status->has_peer = sp_endpoint(sp_member(reply, "peer"), &status->peer);
    status->error = (int)sp_integer(sp_member(reply, "error"), 0);
    sp_text(sp_member(reply, "congestion"), status->congestion, sizeof status->congestion);
    status->mss = sp_integer(sp_member(reply, "mss"), 0);
    status->cwnd = sp_integer(sp_member(reply, "cwnd"), 0);
    status->retransmits = sp_integer(sp_member(reply, "retransmits"), 0);
    status->send_queue = sp_integer(sp_member(reply, "send_queue"), 0);
    status->bytes_sent = sp_integer(sp_member(reply, "bytes_sent"), 0);
    status->bytes_received = sp_integer(sp_member(reply, "bytes_received"), 0);
    status->srtt = sp_number(sp_member(reply, "srtt"));
    status->rttvar = sp_number(sp_member(reply, "rttvar"));
    status->rto = sp_number(sp_member(reply, "rto"));
    return 0;
}
