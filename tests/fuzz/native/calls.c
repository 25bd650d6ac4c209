/* Calls of the preloaded library, by a program that passes anything to a NIC that replies anything. Input: the call, its
   numbers, the size and the bytes of its argument, and the NIC's reply to each of its requests.

   Results lie within the program's space, and requests are text without control characters that is no longer than the
   library's own space for it. */
#include "preload/control.c"
#include "preload/json.c"
#include "preload/names.c"
#include "preload/nic.c"
#include "preload/options.c"
#include "preload/tags.c"

#include "fuzz.h"

enum { FD = 1000000, SPACE = 64 };

static input replies;
static bool six;

/* Before the library's own constructor, which reads it. */
__attribute__((constructor(101))) static void name_nic(void)
{
    setenv("SOFTNIC_NIC", "/nowhere", 1);
}

/* -- what the library calls of the C library -- */

static ssize_t fake_sendmsg(int fd, const struct msghdr *message, int flags)
{
    const char *text = message->msg_iov->iov_base;

    (void)fd, (void)flags;
    CHECK(message->msg_iov->iov_len < SP_TEXT);
    for (size_t index = 0; index < message->msg_iov->iov_len; index++)
        CHECK((unsigned char)text[index] >= ' ');
    return (ssize_t)message->msg_iov->iov_len;
}

static ssize_t fake_recv(int fd, void *to, size_t size, int flags)
{
    (void)fd, (void)flags;
    CHECK(size == SP_REPLY - 1);
    size = size < replies.left ? size : replies.left;
    if (size)
        memcpy(to, replies.data, size);
    return (ssize_t)size;
}

/* socket is the C library's; all others succeed without doing anything. */
static int succeed(void)
{
    return 0;
}

void *sp_real(const char *name, _Atomic(void *) *known)
{
    (void)known;
    if (!strcmp(name, "sendmsg"))
        return (void *)fake_sendmsg;
    if (!strcmp(name, "recv"))
        return (void *)fake_recv;
    return !strcmp(name, "socket") ? (void *)socket : (void *)succeed;
}

/* -- the rest of the library -- */

int sp_result(int result)
{
    CHECK(result > -4096);
    return result < 0 ? -1 : result;
}

bool sp_stream_of(int fd, sp_stream *stream)
{
    *stream = (sp_stream){1, fd, six};
    return fd == FD;
}

bool sp_may_inherit(void)
{
    return false;
}

void sp_share(int fd)
{
    close(fd);
}

int sp_inherit(void)
{
    return -1;
}

bool sp_set_wanted_size(int fd, int size)
{
    (void)fd;
    return size & 1;
}

int sp_settle(int fd, const sp_stream *stream)
{
    sp_status status;

    (void)fd;
    return sp_query(stream, true, &status) ? 0 : -status.error;
}

bool sp_is_connecting(const sp_status *status)
{
    return !strncmp(status->state, "SYN-", 4);
}

void sp_use_linger(void)
{
}

/* -- the calls -- */

static void option(input *in, bool sets)
{
    static const int options[][2] = {
        {SOL_SOCKET, SO_LINGER},       {SOL_SOCKET, SO_ERROR},     {SOL_SOCKET, SO_ACCEPTCONN}, {SOL_SOCKET, SO_SNDBUF},
        {SOL_SOCKET, SO_DOMAIN},       {IPPROTO_TCP, TCP_INFO},    {IPPROTO_TCP, TCP_MAXSEG},   {IPPROTO_IP, IP_TOS},
        {IPPROTO_TCP, TCP_CONGESTION}, {SP_SOL_NIC, SP_NIC_CODEC}, {IPPROTO_IPV6, IPV6_TCLASS}, {IPPROTO_IPV6, IPV6_V6ONLY}};
    const int *chosen = options[take8(in) % (sizeof options / sizeof *options)];
    size_t size;
    uint8_t *value = take_bytes(in, take8(in), &size);
    socklen_t space = (socklen_t)size;

    replies = *in;
    if (sets) {
        setsockopt(FD, chosen[0], chosen[1], value, space);
    } else {
        getsockopt(FD, chosen[0], chosen[1], value, &space);
        CHECK(space <= size);
    }
    free(value);
}

static void address(input *in, uint32_t call)
{
    size_t size;
    uint8_t *bytes = take_bytes(in, take8(in) % SPACE, &size), *space = exactly(SPACE);
    socklen_t length = take8(in) % SPACE, whole = length;
    uint8_t *to = exactly(length);
    sp_address parsed = {0};

    replies = *in;
    if (call == 0 && !getsockname(FD, (void *)to, &whole))
        CHECK(whole == (six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)));
    if (call == 1 && !getpeername(FD, (void *)to, &whole))
        CHECK(whole >= sizeof(struct sockaddr_in));
    if (call == 2 && !sp_parse((void *)bytes, (socklen_t)size, &parsed)) {
        sp_address again = {0};
        whole = SPACE;
        sp_format(&parsed, true, (void *)space, &whole);
        CHECK(!sp_parse((void *)space, whole, &again) && again.ip == parsed.ip && again.port == parsed.port);
    }
    if (call == 3 && !getnameinfo((void *)bytes, (socklen_t)size, (char *)to, length, NULL, 0, six ? NI_NOFQDN : 0) &&
        length && !sp_parse((void *)bytes, (socklen_t)size, &parsed) && parsed.ip &&
        node_name(&parsed.ip, (char[NI_MAXHOST]){0}))
        CHECK(memchr(to, 0, length));
    free(bytes);
    free(space);
    free(to);
}

static void text(input *in, uint32_t call)
{
    const uint16_t port = (uint16_t)take16(in);
    const size_t most = take8(in);
    char codec[CODEC], found[INET_ADDRSTRLEN], *name = (char *)exactly(most + 1);
    size_t size = 0;

    for (; size < most && in->left; size++)
        name[size] = (char)take8(in);
    name[size] = 0;
    replies = *in;
    if (call == 0 && find_codec(name, port, codec))
        CHECK(memchr(codec, 0, sizeof codec) && *codec);
    if (call == 1 && node_address(name, found))
        CHECK(memchr(found, 0, sizeof found));
    if (call == 3) {
        const uint32_t ip = port;
        struct hostent entry = {0}, *result = NULL;
        char *space = (char *)exactly(most);
        int error;
        if (!gethostbyaddr_r(&ip, sizeof ip, AF_INET, &entry, space, most, &result, &error) && most &&
            node_name(&ip, (char[NI_MAXHOST]){0}))
            CHECK(memchr(space, 0, most));
        free(space);
    }
    if (call == 2) {
        char *own = (char *)exactly(most);
        if (!gethostname(own, most) && replies.left && most && memchr(own, 0, most))
            CHECK(strlen(own) < most);
        free(own);
    }
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    const uint32_t call = take8(&in);

    six = take8(&in) & 1;
    if (call % 10 < 2)
        option(&in, call % 10);
    else if (call % 10 < 6)
        address(&in, call % 10 - 2);
    else
        text(&in, call % 10 - 6);
    return 0;
}
