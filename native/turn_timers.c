/* The timers of flows with ports: a heap of ports by the time at which they are checked. softnic/tcp/scheduler.py has those
   of all other flows, by the same rule: an entry counts if its time is the flow's `scheduled_at`. */
#include "turn.h"

#include <math.h>
#include <stdlib.h>

#include "flow_steps.h"
#include "turn_steps.h"

int sn_turn_reserve_timer(sn_turn *t)
{
    if (t->table_used < t->timers_size)
        return 0;
    const uint32_t size = t->timers_size ? 2 * t->timers_size : 64;
    sn_port **timers = realloc(t->timers, size * sizeof *timers);
    if (timers == NULL)
        return -1;
    t->timers = timers;
    t->timers_size = size;
    return 0;
}

static void put(sn_turn *t, uint32_t at, sn_port *port)
{
    t->timers[at] = port;
    port->timer_index = (int64_t)at + 1;
}

/* Moves a port to where it belongs, from `at` on. */
static void sift(sn_turn *t, uint32_t at, sn_port *port)
{
    for (uint32_t parent; at > 0 && t->timers[parent = (at - 1) / 2]->timer_at > port->timer_at; at = parent)
        put(t, at, t->timers[parent]);
    for (uint32_t child; (child = 2 * at + 1) < t->timer_count; at = child) {
        if (child + 1 < t->timer_count && t->timers[child + 1]->timer_at < t->timers[child]->timer_at)
            child++;
        if (t->timers[child]->timer_at >= port->timer_at)
            break;
        put(t, at, t->timers[child]);
    }
    put(t, at, port);
}

bool sn_turn_unschedule(sn_turn *t, sn_port *port)
{
    if (port->timer_index == 0)
        return false;
    const uint32_t at = (uint32_t)port->timer_index - 1;
    sn_port *last = t->timers[--t->timer_count];
    port->timer_index = 0;
    if (last != port)
        sift(t, at, last);
    return port->timer_at == port->flow->connection.scheduled_at;
}

/* The earliest of the timers that Python runs. */
static double deadline_in_python(const sn_connection *c)
{
    const double at[] = {c->rto_at, c->pto, c->reo_timer, c->close_at, c->keepalive_at,
                         c->gap_at, c->cork_at, c->trim_at};
    double first = INFINITY;
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++)
        first = smaller(first, at[i]);
    return first;
}

void sn_turn_schedule(sn_turn *t, sn_port *port)
{
    sn_connection *c = &port->flow->connection;
    const double quick = smaller(c->pacing_timer, port->flow->delayed_ack.at);
    const double deadline = smaller(deadline_in_python(c), quick);
    if (!(deadline < c->scheduled_at))
        return;
    c->scheduled_at = port->timer_at = deadline;
    sift(t, port->timer_index ? (uint32_t)port->timer_index - 1 : t->timer_count++, port);
}

/* Runs the timers that need only numbers: the next burst of a paced flow, and a delayed acknowledgement. */
static void run_quick(sn_turn *t, sn_port *port, double now)
{
    sn_flow *flow = port->flow;
    if (now >= flow->connection.pacing_timer) {
        sn_pacer_woken(&flow->pacer, now - flow->connection.pacing_timer);
        flow->connection.pacing_timer = INFINITY;
        sn_turn_wake_once(t, port);
    }
    if (now >= flow->delayed_ack.at) {
        sn_delayed_ack_expired(&flow->delayed_ack);
        flow->connection.ack_pending = true;
        sn_turn_wake_once(t, port);
    }
}

void sn_turn_run_timers(sn_turn *t, double now)
{
    while (t->timer_count && t->timers[0]->timer_at <= now) {
        sn_port *port = t->timers[0];
        if (!sn_turn_unschedule(t, port))
            continue; /* superseded */
        port->flow->connection.scheduled_at = INFINITY;
        if (now >= deadline_in_python(&port->flow->connection)) {
            sn_turn_note(t, port, SN_PORT_SCHEDULE);
            continue;
        }
        run_quick(t, port, now);
        sn_turn_schedule(t, port);
    }
}

double sn_turn_next_timer(const sn_turn *t)
{
    return t->timer_count ? t->timers[0]->timer_at : INFINITY;
}
