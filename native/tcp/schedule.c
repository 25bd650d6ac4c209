#include "tcp/schedule.h"

#include <math.h>
#include <stdlib.h>

#include "tcp/flow_steps.h"

enum { FIRST_SIZE = 64 };

/* The table */

static uint32_t slot_of(uint32_t size, uint32_t peer_ip, uint32_t peer_port, uint32_t local_port)
{
    uint64_t key = (uint64_t)peer_ip << 32 | peer_port << 16 | local_port;
    return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (size - 1);
}

static uint32_t slot_of_flow(uint32_t size, const sn_flow *flow)
{
    const sn_connection *c = &flow->connection;
    return slot_of(size, (uint32_t)c->peer_ip, (uint32_t)c->peer_port, (uint32_t)c->local_port);
}

static void put_in(sn_flow **table, uint32_t size, sn_flow *flow)
{
    uint32_t at = slot_of_flow(size, flow);
    while (table[at])
        at = (at + 1) & (size - 1);
    table[at] = flow;
}

static int grow_table(sn_schedule *s)
{
    if (2 * (s->flows + 1) <= s->table_size)
        return 0;
    uint32_t size = s->table_size ? 2 * s->table_size : FIRST_SIZE;
    sn_flow **table = calloc(size, sizeof *table);
    if (table == NULL)
        return -1;
    for (uint32_t i = 0; i < s->table_size; i++)
        if (s->table[i])
            put_in(table, size, s->table[i]);
    free(s->table);
    s->table = table;
    s->table_size = size;
    return 0;
}

/* Removes a flow from its slot, and moves those behind it that would not be found any more. */
static void vacate(sn_schedule *s, uint32_t hole)
{
    const uint32_t mask = s->table_size - 1;
    s->table[hole] = NULL;
    for (uint32_t at = (hole + 1) & mask; s->table[at]; at = (at + 1) & mask) {
        uint32_t home = slot_of_flow(s->table_size, s->table[at]);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            s->table[hole] = s->table[at];
            s->table[at] = NULL;
            hole = at;
        }
    }
}

static bool is_at(const sn_flow *flow, uint32_t peer_ip, uint32_t peer_port, uint32_t local_port)
{
    const sn_connection *c = &flow->connection;
    return c->peer_ip == peer_ip && c->peer_port == peer_port && c->local_port == local_port;
}

sn_flow *sn_schedule_find(const sn_schedule *s, uint32_t peer_ip, uint32_t peer_port, uint32_t local_port)
{
    if (s->table_size == 0)
        return NULL;
    uint32_t at = slot_of(s->table_size, peer_ip, peer_port, local_port);
    while (s->table[at] && !is_at(s->table[at], peer_ip, peer_port, local_port))
        at = (at + 1) & (s->table_size - 1);
    return s->table[at];
}

static sn_ready_ring *ring_of(sn_schedule *s, const sn_flow *flow)
{
    return flow->connection.peer_ip == s->ip ? &s->loopback : &s->ready;
}

int sn_schedule_add(sn_schedule *s, sn_flow *flow)
{
    if (grow_table(s))
        return -1;
    if (s->flows == s->timers_size) {
        const uint32_t size = s->timers_size ? 2 * s->timers_size : FIRST_SIZE;
        sn_flow **timers = realloc(s->timers, size * sizeof(sn_flow *));
        if (timers == NULL)
            return -1;
        s->timers = timers;
        s->timers_size = size;
    }
    put_in(s->table, s->table_size, flow);
    s->flows++;
    flow->scheduling.is_known = true;
    return 0;
}

/* Sending */

static void append(sn_ready_ring *ring, sn_flow *flow)
{
    flow->scheduling.next = NULL;
    if (ring->first)
        ring->last->scheduling.next = flow;
    else
        ring->first = flow;
    ring->last = flow;
}

static void unlist(sn_ready_ring *ring, const sn_flow *flow)
{
    sn_flow *before = NULL;
    for (sn_flow *other = ring->first; other; before = other, other = other->scheduling.next) {
        if (other != flow)
            continue;
        if (before)
            before->scheduling.next = other->scheduling.next;
        else
            ring->first = other->scheduling.next;
        if (ring->last == other)
            ring->last = before;
        return;
    }
}

void sn_schedule_wake(sn_schedule *s, sn_flow *flow)
{
    if (flow->connection.queued || !flow->scheduling.is_known)
        return;
    flow->connection.queued = true;
    append(ring_of(s, flow), flow);
}

uint32_t sn_ready_count(const sn_ready_ring *ring)
{
    uint32_t count = 0;
    for (const sn_flow *flow = ring->first; flow; flow = flow->scheduling.next)
        count++;
    return count;
}

int64_t sn_schedule_frames(const sn_ready_ring *ring, int64_t space)
{
    const sn_flow *flow = ring->first;
    if (flow->scheduling.next && space > flow->connection.turn_bytes)
        space = flow->connection.turn_bytes;
    const int64_t frames = space / flow->congestion.smss;
    return frames > 0 ? frames : 1;
}

void sn_schedule_sent(sn_schedule *s, sn_ready_ring *ring, sn_flow *flow, int64_t wire_bytes)
{
    (void)s;
    sn_connection *c = &flow->connection;
    if (!flow->scheduling.is_known || ring->first != flow)
        return; /* it has ended */
    c->turn_bytes -= wire_bytes;
    const bool again = wire_bytes && sn_flow_has_output(flow);
    if (again && c->turn_bytes >= SN_LEAST_TURN_BYTES)
        return;
    ring->first = flow->scheduling.next;
    if (again) {
        append(ring, flow);
        c->turn_bytes = c->turn_bytes + SN_TURN_BYTES > 0 ? c->turn_bytes + SN_TURN_BYTES : 0;
    } else {
        c->queued = false;
        c->turn_bytes = SN_TURN_BYTES;
    }
}

/* Timers */

static bool is_before(const sn_flow *a, const sn_flow *b)
{
    const sn_scheduling *x = &a->scheduling, *y = &b->scheduling;
    return x->timer_at < y->timer_at || (x->timer_at == y->timer_at && x->timer_order < y->timer_order);
}

static void put(sn_schedule *s, uint32_t at, sn_flow *flow)
{
    s->timers[at] = flow;
    flow->scheduling.timer_index = at + 1;
}

/* Moves a flow to where it belongs, from `at` on. */
static void sift(sn_schedule *s, uint32_t at, sn_flow *flow)
{
    for (uint32_t parent; at > 0 && is_before(flow, s->timers[parent = (at - 1) / 2]); at = parent)
        put(s, at, s->timers[parent]);
    for (uint32_t child; (child = 2 * at + 1) < s->timer_count; at = child) {
        if (child + 1 < s->timer_count && is_before(s->timers[child + 1], s->timers[child]))
            child++;
        if (!is_before(s->timers[child], flow))
            break;
        put(s, at, s->timers[child]);
    }
    put(s, at, flow);
}

void sn_schedule_take(sn_schedule *s, sn_flow *flow)
{
    flow->connection.scheduled_at = INFINITY;
    if (flow->scheduling.timer_index == 0)
        return;
    const uint32_t at = flow->scheduling.timer_index - 1;
    sn_flow *last = s->timers[--s->timer_count];
    flow->scheduling.timer_index = 0;
    if (last != flow)
        sift(s, at, last);
}

/* The earliest of the timers that decide something. */
static double deciding_deadline(const sn_connection *c)
{
    const double at[] = {c->rto_at, c->pto, c->reo_timer, c->close_at, c->keepalive_at, c->gap_at, c->cork_at, c->trim_at};
    double first = INFINITY;
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++)
        first = smaller(first, at[i]);
    return first;
}

void sn_schedule_timers(sn_schedule *s, sn_flow *flow)
{
    sn_connection *c = &flow->connection;
    const double deadline = smaller(deciding_deadline(c), smaller(c->pacing_timer, flow->delayed_ack.at));
    if (!(deadline < c->scheduled_at) || !flow->scheduling.is_known)
        return;
    c->scheduled_at = flow->scheduling.timer_at = deadline;
    flow->scheduling.timer_order = s->timer_order++;
    sift(s, flow->scheduling.timer_index ? flow->scheduling.timer_index - 1 : s->timer_count++, flow);
}

static void run_numbers(sn_schedule *s, sn_flow *flow, double now)
{
    sn_connection *c = &flow->connection;
    if (now >= c->pacing_timer) {
        sn_pacer_woken(&flow->pacer, now - c->pacing_timer);
        c->pacing_timer = INFINITY;
        sn_schedule_wake(s, flow);
    }
    if (now >= flow->delayed_ack.at) {
        sn_delayed_ack_expired(&flow->delayed_ack);
        c->ack_pending = true;
        sn_schedule_wake(s, flow);
    }
}

sn_flow *sn_schedule_run(sn_schedule *s, double now)
{
    while (s->timer_count && s->timers[0]->scheduling.timer_at <= now) {
        sn_flow *flow = s->timers[0];
        if (now >= deciding_deadline(&flow->connection))
            return flow;
        sn_schedule_take(s, flow);
        run_numbers(s, flow, now);
        sn_schedule_timers(s, flow);
    }
    return NULL;
}

double sn_schedule_next(const sn_schedule *s)
{
    return s->timer_count ? s->timers[0]->scheduling.timer_at : INFINITY;
}

void sn_schedule_remove(sn_schedule *s, sn_flow *flow)
{
    if (!flow->scheduling.is_known)
        return;
    if (flow->connection.queued)
        unlist(ring_of(s, flow), flow);
    flow->connection.queued = false;
    sn_schedule_take(s, flow);
    uint32_t at = slot_of_flow(s->table_size, flow);
    while (s->table[at] != flow)
        at = (at + 1) & (s->table_size - 1);
    vacate(s, at);
    flow->scheduling.is_known = false;
    s->flows--;
}

void sn_schedule_clear(sn_schedule *s)
{
    free(s->timers);
    free(s->table);
    *s = (sn_schedule){.ip = s->ip};
}
