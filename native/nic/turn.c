/* A turn: events, what applications wrote, what arrived, timers, what is to be sent. */
#define _GNU_SOURCE
#include "nic/turn.h"

#include <errno.h>
#include <math.h>
#include <sys/epoll.h>

#include "nic/epoll.h"
#include "nic/turn_steps.h"

/* Reads once from every port that may have bytes; those that may have more stay in the list. */
static void pull(sn_turn *t)
{
    sn_port *last = t->last_pulled, *port;
    while ((port = sn_turn_take_pulled(t)) != NULL) {
        int64_t count = sn_port_pull(port);
        if (count < 0)
            sn_turn_note(t, port, SN_PORT_READ);
        if (count > 0) {
            sn_schedule_wake(t->schedule, port->flow);
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
        } else if (fd == t->inbox_event) {
            sn_epoll_take_event(fd);
            t->has_inbox = true;
            t->has_sealed = t->channel != NULL;
        } else if (t->tap && fd == t->tap->fd) {
            t->tap->readable = true;
        } else if (port && !(mask & ~(uint32_t)(EPOLLIN | EPOLLOUT))) {
            if (mask & EPOLLIN) {
                port->readable = true;
                sn_turn_pull(t, port);
            }
            if (mask & EPOLLOUT)
                sn_turn_push(t, port);
        } else {
            t->fds[left] = fd;
            t->masks[left++] = mask;
        }
    }
    t->event_count = left;
}

void sn_turn_receive_all(sn_turn *t, double now)
{
    sn_flow *flow;
    if (t->capture)
        sn_capture_flush(t->capture, now);
    if (now >= t->link_at)
        t->control.advance_link(t->owner, now);
    if (t->emulated && !t->wire_is_full) { /* else what waits for the kernel would be overtaken */
        sn_turn_release(t, now);
        sn_emulated_unblock(t->emulated, now);
    }
    sn_turn_take_batches(t, now);
    if (now >= t->requests_at && !t->failed)
        t->control.advance_requests(t->owner, now);
    while (!t->failed && (flow = sn_schedule_run(t->schedule, now)) != NULL)
        t->control.expire(t->owner, flow, now);
}

void sn_turn_step(sn_turn *t, double now)
{
    t->turns++;
    dispatch(t);
    pull(t);
    sn_turn_receive_all(t, now);
    t->has_looped = false;
    const bool left = sn_turn_advance_engines(t, now);
    const bool attends = t->control.attend && (left || t->attends || t->attention || t->first_noted);
    t->attention = false;
    if (attends && !t->failed)
        t->control.attend(t->owner, now);
    sn_turn_send_all(t, now);
    if (attends && !t->failed)
        t->control.report(t->owner, now);
}

/* Whether there is something to do at once. */
static bool is_busy(const sn_turn *t)
{
    if (t->tap && !t->is_full && (t->tap->readable || t->tap->next < t->tap->count))
        return true;
    return t->first_pulled || t->first_noted || t->has_looped || t->has_frames || t->has_inbox || t->has_sealed ||
           t->attention || t->schedule->loopback.first || (t->schedule->ready.first && !t->is_full) || t->wire_readable;
}

double sn_turn_due(const sn_turn *t)
{
    if (is_busy(t))
        return -INFINITY;
    double at = fmin(fmin(t->timers_at, sn_schedule_next(t->schedule)), fmin(t->link_at, t->requests_at));
    if (t->capture)
        at = fmin(at, t->capture->flush_at);
    return t->emulated && !t->wire_is_full ? fmin(at, sn_emulated_next_time(t->emulated)) : at;
}

/* Waits for events until `limit`, first polling if `polls`. Returns their number, or -errno. */
static int wait_for_events(sn_turn *t, double limit, bool polls)
{
    int64_t wait = -1;
    if (limit == -INFINITY)
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
        t->is_waiting = true;
        const int found = wait_for_events(t, fmin(until, sn_turn_due(t)), polls);
        t->is_waiting = false;
        if (found < 0)
            return found;
        t->event_count = (uint32_t)found;
        const double now = sn_turn_clock();
        polls = found && t->poll_s > 0;
        sn_turn_step(t, now);
        const int64_t reasons = (t->event_count ? SN_TURN_EVENTS : 0) | (t->failed ? SN_TURN_FAILED : 0) |
                                (now >= t->timers_at ? SN_TURN_TIMERS : 0) | (now >= until ? SN_TURN_UNTIL : 0);
        if (reasons)
            return reasons;
    }
}
