/* epoll with timeouts in nanoseconds; epoll_wait's own are whole milliseconds and end late. */
#define _GNU_SOURCE
#include "nic/epoll.h"

#include <errno.h>

#if defined(__linux__)
#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { EPOLL_EVENTS = 256 };
#endif

#if defined(__linux__)
/* epoll_pwait2 (Linux 5.11), or two calls with the same effect: an epoll instance can itself be polled. */
static int wait_for_events(int fd, struct epoll_event *events, int most, int64_t timeout_ns)
{
    static atomic_int missing; /* set by the first thread that finds out */
    const struct timespec limit = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};

    if (timeout_ns <= 0)
        return epoll_wait(fd, events, most, timeout_ns ? -1 : 0);
#ifdef SYS_epoll_pwait2
    if (!missing) {
        const long found = syscall(SYS_epoll_pwait2, fd, events, most, &limit, NULL, (size_t)8);
        if (found >= 0 || errno != ENOSYS)
            return (int)found;
        missing = 1;
    }
#endif
    struct pollfd instance = {fd, POLLIN, 0};
    const int ready = ppoll(&instance, 1, &limit, NULL);
    return ready > 0 ? epoll_wait(fd, events, most, 0) : ready;
}
#endif

int sn_epoll_wait(int fd, int64_t timeout_ns, int32_t *descriptors, uint32_t *masks, uint32_t most)
{
#if defined(__linux__)
    struct epoll_event events[EPOLL_EVENTS];
    const int found = wait_for_events(fd, events, most < EPOLL_EVENTS ? (int)most : EPOLL_EVENTS, timeout_ns);
    for (int i = 0; i < found; i++) {
        descriptors[i] = events[i].data.fd;
        masks[i] = events[i].events;
    }
    return found < 0 ? -errno : found;
#else
    (void)fd, (void)timeout_ns, (void)descriptors, (void)masks, (void)most;
    return -ENOSYS;
#endif
}

int sn_epoll_watch(int fd, int watched, int space)
{
#if defined(__linux__)
    struct epoll_event event = {EPOLLIN | EPOLLRDHUP | (uint32_t)EPOLLET | (space ? EPOLLOUT : 0), {.fd = watched}};
    return epoll_ctl(fd, EPOLL_CTL_MOD, watched, &event) < 0 ? -errno : 0;
#else
    (void)fd, (void)watched, (void)space;
    return -ENOSYS;
#endif
}

void sn_epoll_take_event(int event)
{
#if defined(__linux__)
    uint64_t count;
    if (read(event, &count, sizeof count) < 0) {
        /* it was reset already */
    }
#else
    (void)event;
#endif
}

int sn_set_timer_slack(void)
{
#if defined(__linux__)
    return prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) < 0 ? -errno : 0;
#else
    return -ENOSYS;
#endif
}
