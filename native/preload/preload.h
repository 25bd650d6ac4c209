/* The preloaded library: the C library's socket calls, for programs of any language, with TCP over IPv4 by the NIC.

   softnic/preload.py sets LD_PRELOAD to it. A stream is one end of a Unix stream pair whose other end the NIC has, as in
   softnic/socket; the kernel moves the bytes. The library keeps nothing about a stream: the descriptor's own name, in
   the abstract namespace of Unix sockets, is "softnic/NUMBER" (the NIC's number of the stream), followed by "/6" where
   the program sees addresses of IPv6. Names survive dup, fork, exec and SCM_RIGHTS. All else is asked of the NIC. */
#ifndef SOFTNIC_PRELOAD_H
#define SOFTNIC_PRELOAD_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#undef _FORTIFY_SOURCE /* its inline functions have the names that are defined here */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* A function that replaces the C library's. */
#define PRELOADED __attribute__((visibility("default")))
/* The C library's function of this name. */
#define REAL(name)                                     \
    ({                                                 \
        static _Atomic(void *) known_##name;           \
        (__typeof__(&name))sp_real(#name, &known_##name); \
    })

enum { SP_TEXT = 320, SP_REPLY = 4096 };
enum { SP_SOL_NIC = 0x4E49, SP_NIC_CODEC = 1, SP_NIC_BLOCKS = 2 };

typedef struct {
    int64_t number;
    int fd;   /* the descriptor that it was found by */
    bool six; /* the program opened it as AF_INET6 */
} sp_stream;

typedef struct {
    uint32_t ip; /* network order */
    uint16_t port;
} sp_address;

typedef struct {
    char state[16];
    sp_address local, peer;
    bool has_peer;
    bool is_closed; /* its last descriptor was closed */
    int error;
    char congestion[16];
    int64_t mss, cwnd, retransmits, send_queue, notsent, bytes_sent, bytes_received;
    double srtt, rttvar, rto;
} sp_status;

/* -- preload/nic.c -- */

/* The NIC's control socket; NULL: the library changes nothing. */
const char *sp_nic(void);
/* Sends bytes with a file descriptor (-1: none), as sendmsg. */
ssize_t sp_send_with(int to, const char *text, size_t size, int fd);

/* -- preload/json.c: replies -- */

/* Returns the value of a member of the object at `text`, which ends with a zero byte, or NULL. */
const char *sp_member(const char *text, const char *name);
int64_t sp_integer(const char *value, int64_t otherwise);
double sp_number(const char *value);
/* Copies a string without escapes, cut to the space there is. Returns what follows it, or NULL if it is none. */
const char *sp_text(const char *value, char *to, size_t space);
/* Parses ["10.77.0.1",80]. */
bool sp_endpoint(const char *value, sp_address *address);

/* -- preload/control.c: requests. They return 0 or more, or -errno -- */

/* Sends a request with a file descriptor (-1: none) and receives the reply, which may not be Failed. */
int sp_call(char reply[static SP_REPLY], int fd, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* As sp_call, for a request about a stream, whose descriptor goes with it where the process has inherited its rights. */
int sp_ask(char reply[static SP_REPLY], const sp_stream *stream, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int sp_query(const sp_stream *stream, bool clear, sp_status *status);
/* Whether this is a child that shares the memory of its parent, or one that the C library does not know of. */
bool sp_is_vforked(void);
int64_t sp_now_ms(void);

/* -- preload/inherited.c: called while a request is made -- */

/* Whether there is a shared connection to a NIC, of this process or one before it. */
bool sp_may_inherit(void);
/* Makes a new control connection the shared one, or closes it. */
void sp_share(int fd);
/* Returns the descriptor of a control connection by means of the shared one, or -1. */
int sp_inherit(void);

/* -- preload/streams.c -- */

typedef enum { SP_NOTHING, SP_IGNORED, SP_UNCONNECTED, SP_PENDING } sp_mark;
enum { SP_MARKS = 1 << 20 }; /* descriptors; higher ones have none */

/* Values of marks that have no inode. */
enum { SP_NOT_LOOKED_AT, SP_PLAIN /* not a stream, or one that is connected */ };

extern _Atomic uint64_t sp_marks[SP_MARKS];
/* Reads a mark that has an inode. Preserves errno. */
sp_mark sp_read_mark(int fd);

static inline uint64_t sp_raw_mark(int fd)
{
    return fd < 0 || fd >= SP_MARKS ? SP_PLAIN : __atomic_load_n((uint64_t *)&sp_marks[fd], __ATOMIC_RELAXED);
}

/* What is known of a descriptor without asking the NIC; one load for those of which nothing is. */
static inline sp_mark sp_marked(int fd)
{
    return sp_raw_mark(fd) <= SP_PLAIN ? SP_NOTHING : sp_read_mark(fd);
}

/* Leaves a descriptor to the kernel until it is closed or another file's: softnic.socket in the same process calls it
   for its own. */
PRELOADED void softnic_preload_ignore(int fd);

/* Whether a file descriptor is a NIC's stream. Preserves errno. */
bool sp_stream_of(int fd, sp_stream *stream);
/* Names a descriptor. Returns 0 or -errno. */
int sp_name(int fd, const sp_stream *stream);
/* Returns the descriptor of a new stream, or -errno. `flags`: SOCK_CLOEXEC, SOCK_NONBLOCK. */
int sp_open(int flags, bool six, sp_stream *stream);
/* Whether it is a kernel's TCP socket of IPv6 that takes connections of IPv4 as well. */
bool sp_is_six(int fd);
/* Fills the send buffer, so that the descriptor is not writable until the NIC has read that. Returns the size that
   SO_SNDBUF had before, for sp_unblock. */
int sp_block(int fd);
/* Sets SO_SNDBUF to what it was, after the NIC has refused what the buffer was filled for, and has emptied it. */
void sp_unblock(int fd, int size);
/* Marks a descriptor whose connect has no known outcome yet, or one that is not connected. */
void sp_mark_connect(int fd, bool is_pending);
/* Marks a descriptor that is not connected, with the size of sp_wanted_size. */
void sp_mark_unconnected(int fd, int size);
/* SO_SNDBUF of when it is connected; 0: the program has set none. */
int sp_wanted_size(int fd);
/* Notes it for a descriptor that is not connected. Returns whether it is connecting, so that it has to wait. */
bool sp_set_wanted_size(int fd, int size);
/* Takes the outcome of a connect: 0, -EALREADY, or the NIC's error. */
int sp_settle(int fd, const sp_stream *stream);
/* Marks the descriptor of an accepted connection. */
void sp_mark_connected(int fd);
/* Forgets what is known of a descriptor that is about to be closed. */
void sp_forget(int fd);
/* As sp_check, for a descriptor that was not looked at, or has a mark. Preserves errno. */
int sp_confirm(int fd, int otherwise);
/* Whether bytes can be transferred, before they are: returns 0, the error of a failed connect, or `otherwise`: there was
   none. Notes that a pending connect has succeeded. A descriptor that this process has got by dup, from its parent or
   over a Unix socket is looked at before its first transfer. */
static inline int sp_check(int fd, int otherwise)
{
    return sp_raw_mark(fd) == SP_PLAIN ? 0 : sp_confirm(fd, otherwise);
}
bool sp_is_connecting(const sp_status *status);

/* -- preload/replace.c -- */

/* Replaces a kernel's TCP socket of IPv6, or a stream, by a new stream with its options. Returns 0 or -errno. */
int sp_replace(int fd, bool six, sp_stream *stream);
/* Gives an accepted connection what it has of the listening socket, beside the NIC's options. */
void sp_inherit_options(int listening, int accepted);

/* -- preload/interfaces.c -- */

/* Finds the node's address. Returns 0 or -errno. */
int sp_own_address(sp_address *own);
bool sp_is_interface_request(unsigned long request);
/* As ioctl. */
int sp_interface_request(int fd, unsigned long request, void *argument);

/* -- preload/names.c: addresses -- */

/* Parses a socket address. Returns 0, -EINVAL, or -EAFNOSUPPORT: not of IPv4, nor the same in IPv6's form. */
int sp_parse(const struct sockaddr *address, socklen_t size, sp_address *to);
/* Writes a socket address as the kernel does: as much as there is space for, and its full size to `size`. */
void sp_format(const sp_address *address, bool six, struct sockaddr *to, socklen_t *size);

/* -- preload/close.c -- */

/* Notes that this process has given a stream SO_LINGER with seconds. */
void sp_use_linger(void);

/* -- preload/tags.c -- */

/* Tags a stream that is about to connect to, or listen at, a port, if the user has given that port a codec. */
void sp_tag(int fd, uint16_t port);

/* Sets errno and returns -1 for a negative result; otherwise returns the result. */
int sp_result(int result);
void *sp_real(const char *name, _Atomic(void *) *known);

#endif
