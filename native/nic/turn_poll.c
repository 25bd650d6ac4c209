/* The clock, and busy polling (`poll_s`): the next turn need not wait until the kernel has woken this process. What it
   waits for often comes from a process that needs the same core, so a poll ends where cores are scarce, and gives way on
   each step. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "nic/epoll.h"
#include "nic/turn_steps.h"

enum { MOST_SKIPPED = 64 };

double sn_turn_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec * INT64_C(1000000000) + now.tv_nsec) / 1e9;
}

/* Number of threads of this machine that run or wait for a core, from /proc/loadavg; -1: unknown. */
static int runnable_threads(void)
{
    static int fd = -1;
    char text[128];
    if (fd < 0)
        fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    const ssize_t size = pread(fd, text, sizeof text - 1, 0);
    int runnable = -1;
    text[size > 0 ? size : 0] = 0;
    return sscanf(text, "%*s %*s %*s %d/", &runnable) == 1 ? runnable : -1;
}

/* Whether no thread has to wait for a core because this one polls. */
static bool has_core_to_spare(void)
{
    return runnable_threads() <= sysconf(_SC_NPROCESSORS_ONLN);
}

int sn_turn_poll(sn_turn *t, double limit)
{
    int found = 0;
    if (t->polls_skipped < t->polls_to_skip) {
        t->polls_skipped++;
        return 0;
    }
    const double stop = fmin(limit, sn_turn_clock() + t->poll_s);
    for (;;) {
        found = sn_epoll_wait(t->epoll, 0, t->fds, t->masks, SN_TURN_EVENTS_MOST);
        if (found || sn_turn_clock() >= stop || !has_core_to_spare())
            break;
        sched_yield(); /* to a process that was woken on this core and has not been moved to a free one yet */
    }
    t->polls_skipped = 0;
    if (found)
        t->polls_to_skip = 0;
    else if (t->polls_to_skip < MOST_SKIPPED)
        t->polls_to_skip = t->polls_to_skip ? 2 * t->polls_to_skip : 1;
    return found;
}
