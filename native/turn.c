/* A turn: events, what applications wrote, what arrived, what is to be sent. */
#define _GNU_SOURCE
#include "turn.h"

#include <errno.h>
#include <math.h>
#include <sys/epoll.h>
#include <time.h>

#include "epoll.h"
#include "turn_steps.h"

enum { LINK_SPACE = 4 << 20 }; /* softnic/link/udp.py, SEND_LIMIT_BYTES */

/* Reads once from every port that may have bytes; those that may have more stay in the list. */
static void pull(sn_turn *t)
{
    sn_port *last = t->last_pulled, *port;
    while ((port = sn_turn_take_pulled(t)) != NULL) {
        int64_t count = sn_port_pull(port);
        if (count < 0)
            sn_turn_note(t, port, SN_PORT_READ);
        if (count > 0) {
            sn_turn_wake_once(t, port);
            if (port->readable)
                sn_turn_pull(t, port);
        }
        if (port == last)
            return;
    }
}

/* Dispatches events: those of ports here, the others are left. */
static void dispatch(sn_turn *t)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < t->event_count; i++) {
        const int32_t fd = t->fds[i];
        const uint32_t mask = t->masks[i];
        sn_port *port = (uint32_t)fd < t->by_fd_size ? t->by_fd[fd] : NULL;
        if (fd == t->wire) {
            t->wire_readable = true;
        } else if (port && !(mask & ~(uint32_t)(EPOLLIN | EPOLLOUT))) {
            if (mask & EPOLLIN) {
                port->readable = true;
                sn_turn_pull(t, port);
            }
            if (mask & EPOLLOUT && port->flow->receive.unread == port->kept)
                sn_turn_push(t, port);
            else if (mask & EPOLLOUT)
                sn_turn_note(t, port, SN_PORT_WRITE);
        } else {
            t->fds[left] = fd;
            t->masks[left++] = mask;
        }
    }
    t->event_count = left;
    if (left)
        t->reasons |= SN_TURN_EVENTS;
}

/* Lets flows send until none wants to, the link is full or one needs Python. */
static void send(sn_turn *t, double now)
{
    if (sn_turn_output_loopback(t, now))
        return;
    while (t->ready.first) {
        const int64_t space = t->emulated ? sn_emulated_tx_space(t->emulated, now) : LINK_SPACE;
        if (space <= 0) {
            t->link_full_at = now;
            return;
        }
        if (sn_turn_output(t, space, now))
            return;
    }
}

uint32_t sn_turn_step(sn_turn *t, double now)
{
    t->reasons = 0;
    dispatch(t);
    pull(t);
    if (t->emulated) {
        sn_turn_release(t, now);
        sn_emulated_unblock(t->emulated, now);
    }
    sn_turn_receive_all(t, now);
    sn_turn_run_timers(t, now);
    if (now >= t->timers_at)
        t->reasons |= SN_TURN_TIMERS;
    if (t->reasons & (SN_TURN_FRAMES | SN_TURN_RUNS | SN_TURN_TIMERS))
        return t->reasons;
    t->has_looped = false;
    sn_turn_advance_engines(t);
    if (!(t->reasons & SN_TURN_ENGINE))
        send(t, now);
    return t->reasons;
}

double sn_turn_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec * INT64_C(1000000000) + now.tv_nsec) / 1e9;
}

/* Waits for events until `limit`, first polling if `polls`. Returns their number, or -errno. */
static int wait_for_events(sn_turn *t, double limit, bool polls)
{
    int64_t wait = -1;
    if (t->first_pulled || t->has_looped || t->ready_loopback.first)
        wait = 0;
    else if (polls) {
        const int found = sn_turn_poll(t, limit);
        if (found)
            return found;
    }
    if (wait && limit != INFINITY) {
        const double seconds = limit - sn_turn_clock();
        wait = seconds > 0 ? (int64_t)fmin(ceil(seconds * 1e9), 0x1p62) : 0;
    }
    return sn_epoll_wait(t->epoll, wait, t->fds, t->masks, SN_TURN_EVENTS_MOST);
}

int64_t sn_turn_run(sn_turn *t, double until)
{
    bool polls = false;
    for (;;) {
        double limit = fmin(fmin(until, t->timers_at), sn_turn_next_timer(t));
        if (t->emulated)
            limit = fmin(limit, sn_emulated_next_time(t->emulated, INFINITY));
        const int found = wait_for_events(t, limit, polls);
        if (found < 0)
            return found;
        t->event_count = (uint32_t)found;
        const double now = sn_turn_clock();
        polls = found && t->poll_s > 0;
        if (sn_turn_step(t, now))
            return t->reasons;
        if (now >= until)
            return SN_TURN_UNTIL;
    }
}
