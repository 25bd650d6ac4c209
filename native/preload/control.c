/* The preloaded library's control connection: one of the process, opened when first needed (softnic/ipc/control.py).

   The program does not know of the descriptor and may close it, so its number is checked for the same file before each
   use. A forked child has its own connection, and a child of vfork, which shares its parent's memory, one for each
   request. A process that has changed its user has another, with the rights that are left to it (preload/inherited.c).
   While a request is made no signal handler runs in its thread, since a handler may make calls too. */
#include "preload/preload.h"

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
static bool is_inherited; /* the NIC wants a stream's descriptor with each request about it */
static uid_t user;        /* who opened it */
static pid_t process;

static bool is_ours(void)
{
    struct stat now;

    return connection >= 0 && !fstat(connection, &now) && now.st_ino == identity.st_ino && now.st_dev == identity.st_dev;
}

static void disconnect(void)
{
    if (is_ours())
        REAL(close)(connection);
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

/* Limits how long a call on a connection waits. */
static void set_timeout(int fd)
{
    const struct timeval timeout = {TIMEOUT_S, 0};

    REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    REAL(setsockopt)(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

/* Connects to the NIC's control socket. Returns a descriptor, or -errno. */
static int connect_to_nic(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int made = REAL(socket)(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (made < 0)
        return -errno;
    strcpy(address.sun_path, sp_nic());
    set_timeout(made);
    if (!REAL(connect)(made, (void *)&address, sizeof address))
        return made;
    const int error = errno == EACCES || errno == EPERM ? EACCES : ENETDOWN;
    REAL(close)(made);
    return -error;
}

/* Returns 0 or -errno. */
static int make_connection(void)
{
    int made = connect_to_nic();

    is_inherited = made < 0;
    if (is_inherited) {
        const int inherited = sp_inherit();
        if (inherited < 0)
            return made;
        made = inherited;
        set_timeout(made);
    }
    connection = fcntl(made, F_DUPFD_CLOEXEC, LEAST_FD);
    if (connection < 0)
        connection = made;
    else
        REAL(close)(made);
    user = geteuid();
    if (fstat(connection, &identity))
        return -errno;
    if (!is_inherited && !sp_is_vforked() && !sp_may_inherit()) {
        const int shared = connect_to_nic();
        if (shared >= 0)
            sp_share(shared);
    }
    return 0;
}

typedef struct {
    char text[SP_TEXT];
    size_t size;
    int fd;        /* -1: none */
    bool is_proof; /* the descriptor is needed only by a NIC that asks for proof */
} request;

/* As recv, which a stop of the process interrupts, since there is a timeout. */
static ssize_t receive(char *reply)
{
    ssize_t got;

    do
        got = REAL(recv)(connection, reply, SP_REPLY - 1, 0);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Returns the size of the reply, or -errno. */
static ssize_t exchange(const request *sent, char *reply)
{
    if (!is_ours())
        connection = -1; /* the program has closed it */
    else if (user != geteuid() && sp_may_inherit())
        disconnect();
    for (int attempt = 0; attempt < 2; attempt++) {
        if (connection < 0) {
            const int error = make_connection();
            if (error)
                return error;
        }
        const int fd = sent->is_proof && !is_inherited ? -1 : sent->fd;
        if (sp_send_with(connection, sent->text, sent->size, fd) == (ssize_t)sent->size) {
            const ssize_t got = receive(reply);
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
static ssize_t exchange_apart(const request *sent, char *reply)
{
    const struct stat parents_identity = identity;
    const int parents = connection;
    const bool was_inherited = is_inherited;
    const uid_t parents_user = user;

    connection = -1;
    const ssize_t got = exchange(sent, reply);
    disconnect();
    connection = parents;
    identity = parents_identity;
    is_inherited = was_inherited;
    user = parents_user;
    return got;
}

/* Sends a request whose descriptor is set, and whose text is formatted from these arguments. */
static int call(char reply[static SP_REPLY], request *sent, const char *format, va_list arguments)
{
    const int before = errno, size = vsnprintf(sent->text, sizeof sent->text, format, arguments);
    sigset_t all, mask;
    int state;

    if (size < 0 || size >= (int)sizeof sent->text)
        return -EINVAL;
    sent->size = (size_t)size;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pthread_mutex_lock(&lock);
    const ssize_t got = (sp_is_vforked() ? exchange_apart : exchange)(sent, reply);
    pthread_mutex_unlock(&lock);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    pthread_setcancelstate(state, NULL);
    errno = before;
    reply[got > 0 ? got : 0] = 0;
    return got > 0 ? outcome(reply) : (int)got;
}

int sp_call(char reply[static SP_REPLY], int fd, const char *format, ...)
{
    request sent = {.fd = fd};
    va_list arguments;

    va_start(arguments, format);
    const int result = call(reply, &sent, format, arguments);
    va_end(arguments);
    return result;
}

int sp_ask(char reply[static SP_REPLY], const sp_stream *stream, const char *format, ...)
{
    request sent = {.fd = stream->fd, .is_proof = true};
    va_list arguments;

    va_start(arguments, format);
    const int result = call(reply, &sent, format, arguments);
    va_end(arguments);
    return result;
}

int sp_query(const sp_stream *stream, bool clear, sp_status *status)
{
    char reply[SP_REPLY];
    const int error = sp_ask(reply, stream, "{\"type\":\"QueryStream\",\"stream\":%lld,\"clear\":%s}",
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
    status->notsent = sp_integer(sp_member(reply, "notsent"), 0);
    status->bytes_sent = sp_integer(sp_member(reply, "bytes_sent"), 0);
    status->bytes_received = sp_integer(sp_member(reply, "bytes_received"), 0);
    status->srtt = sp_number(sp_member(reply, "srtt"));
    status->rttvar = sp_number(sp_member(reply, "rttvar"));
    status->rto = sp_number(sp_member(reply, "rto"));
    return 0;
}
