/* Closing in the preloaded library: what is known of a descriptor is forgotten; and with SO_LINGER and seconds, the close
   of a stream's last descriptor waits until the peer has acknowledged everything, that time at most.

   The NIC sends what was written in any case, so `close` costs nothing more in processes that never set the option. A
   child of vfork does not wait: it shares the memory of its parent, and closes what the parent keeps. */
#include "preload/preload.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic bool is_used;

void sp_use_linger(void)
{
    is_used = true;
}

/* Whether bytes, or the FIN, may not be acknowledged yet. */
static bool is_unacknowledged(const char *state)
{
    static const char *const names[] = {"ESTABLISHED", "CLOSE-WAIT", "FIN-WAIT-1", "CLOSING", "LAST-ACK"};

    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        if (!strcmp(state, names[index]))
            return true;
    return false;
}

/* Waits after the close. Not if the stream has other descriptors, in this process or in another. */
static void wait_acknowledged(const sp_stream *stream, int seconds)
{
    const int64_t end = sp_now_ms() + (int64_t)seconds * 1000;
    struct timespec pause = {0, 1000000};
    sp_status status;

    while (!sp_query(stream, false, &status) && status.is_closed && is_unacknowledged(status.state) &&
           sp_now_ms() < end) {
        if (nanosleep(&pause, NULL)) /* a signal ends the wait, as in the kernel */
            return;
        if (pause.tv_nsec < 32000000)
            pause.tv_nsec *= 2;
    }
}

PRELOADED int dup2(int fd, int as)
{
    if (fd != as)
        sp_forget(as);
    return REAL(dup2)(fd, as);
}

PRELOADED int dup3(int fd, int as, int flags)
{
    if (fd != as)
        sp_forget(as);
    return REAL(dup3)(fd, as, flags);
}

PRELOADED int close(int fd)
{
    const int before = errno;
    sp_stream stream;
    struct linger linger = {0};
    socklen_t size = sizeof linger;

    sp_forget(fd);
    if (!is_used || sp_is_vforked() || !sp_stream_of(fd, &stream))
        return REAL(close)(fd);
    if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &size))
        linger.l_onoff = 0;
    if (REAL(close)(fd))
        return -1;
    stream.fd = -1;
    if (linger.l_onoff && linger.l_linger > 0)
        wait_acknowledged(&stream, linger.l_linger);
    errno = before;
    return 0;
}
