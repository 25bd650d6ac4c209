/* The ports of a turn: by flow, by file descriptor, and in the lists of those with work to do. */
#include "turn.h"

#include <stdlib.h>
#include <string.h>

#include "turn_steps.h"

enum { FIRST_SIZE = 64 };

static uint32_t slot_of(uint32_t size, uint32_t peer_ip, uint32_t peer_port, uint32_t local_port)
{
    uint64_t key = (uint64_t)peer_ip << 32 | peer_port << 16 | local_port;
    return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (size - 1);
}

static uint32_t slot_of_port(uint32_t size, const sn_port *port)
{
    const sn_connection *c = &port->flow->connection;
    return slot_of(size, (uint32_t)c->peer_ip, (uint32_t)c->peer_port, (uint32_t)c->local_port);
}

static void put(sn_port **table, uint32_t size, sn_port *port)
{
    uint32_t at = slot_of_port(size, port);
    while (table[at])
        at = (at + 1) & (size - 1);
    table[at] = port;
}

static int grow_table(sn_turn *t)
{
    if (2 * (t->table_used + 1) <= t->table_size)
        return 0;
    uint32_t size = t->table_size ? 2 * t->table_size : FIRST_SIZE;
    sn_port **table = calloc(size, sizeof *table);
    if (table == NULL)
        return -1;
    for (uint32_t i = 0; i < t->table_size; i++)
        if (t->table[i])
            put(table, size, t->table[i]);
    free(t->table);
    t->table = table;
    t->table_size = size;
    return 0;
}

static int grow_by_fd(sn_turn *t, uint32_t fd)
{
    if (fd < t->by_fd_size)
        return 0;
    uint32_t size = t->by_fd_size ? t->by_fd_size : FIRST_SIZE;
    while (size <= fd)
        size *= 2;
    sn_port **by_fd = realloc(t->by_fd, size * sizeof *by_fd);
    if (by_fd == NULL)
        return -1;
    memset(by_fd + t->by_fd_size, 0, (size - t->by_fd_size) * sizeof *by_fd);
    t->by_fd = by_fd;
    t->by_fd_size = size;
    return 0;
}

int sn_turn_add(sn_turn *t, sn_port *port, sn_flow *flow)
{
    if (grow_table(t) || grow_by_fd(t, (uint32_t)port->fd) || sn_turn_reserve_timer(t))
        return -1;
    port->flow = flow;
    port->is_loopback = flow->connection.peer_ip == t->ip;
    port->tag = port->peer_codecs = port->path_epoch = -1;
    put(t->table, t->table_size, port);
    t->table_used++;
    t->by_fd[port->fd] = port;
    port->in_table = true;
    return 0;
}

/* Removes a port from its slot, and moves those behind it that would not be found any more. */
static void vacate(sn_turn *t, uint32_t hole)
{
    const uint32_t mask = t->table_size - 1;
    t->table[hole] = NULL;
    for (uint32_t at = (hole + 1) & mask; t->table[at]; at = (at + 1) & mask) {
        uint32_t home = slot_of_port(t->table_size, t->table[at]);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            t->table[hole] = t->table[at];
            t->table[at] = NULL;
            hole = at;
        }
    }
}

/* Removes a port from the list of those to be read. */
static void unlist_pulled(sn_turn *t, sn_port *port)
{
    sn_port *last = t->last_pulled, *other;
    while (port->is_pulled && (other = sn_turn_take_pulled(t)) != NULL) {
        if (other != port)
            sn_turn_pull(t, other);
        if (other == last)
            return;
    }
}

static sn_ready_list *ready_list(sn_turn *t, const sn_port *port)
{
    return port->is_loopback ? &t->ready_loopback : &t->ready;
}

/* Removes a port from the list of those that wait to send. Returns whether it was there. */
static bool unlist_ready(sn_turn *t, const sn_port *port)
{
    sn_ready_list *list = ready_list(t, port);
    sn_port *before = NULL;
    for (sn_port *other = list->first; other; before = other, other = other->next_ready) {
        if (other != port)
            continue;
        if (before)
            before->next_ready = other->next_ready;
        else
            list->first = other->next_ready;
        if (list->last == other)
            list->last = before;
        return true;
    }
    return false;
}

uint32_t sn_turn_remove(sn_turn *t, sn_port *port)
{
    if (!port->in_table)
        return 0;
    unlist_pulled(t, port);
    const uint32_t left = (unlist_ready(t, port) ? SN_PORT_READ : 0) | (sn_turn_unschedule(t, port) ? SN_PORT_SCHEDULE : 0);
    uint32_t at = slot_of_port(t->table_size, port);
    while (t->table[at] != port)
        at = (at + 1) & (t->table_size - 1);
    vacate(t, at);
    t->table_used--;
    t->by_fd[port->fd] = NULL;
    port->in_table = false;
    port->flow = NULL;
    return left;
}

sn_port *sn_turn_find(const sn_turn *t, uint32_t peer_ip, uint32_t peer_port, uint32_t local_port)
{
    if (t->table_size == 0)
        return NULL;
    for (uint32_t at = slot_of(t->table_size, peer_ip, peer_port, local_port); t->table[at];
         at = (at + 1) & (t->table_size - 1)) {
        const sn_connection *c = &t->table[at]->flow->connection;
        if (c->peer_ip == peer_ip && c->peer_port == peer_port && c->local_port == local_port)
            return t->table[at];
    }
    return NULL;
}

void sn_turn_wake(sn_turn *t, sn_port *port)
{
    sn_ready_list *list = ready_list(t, port);
    port->flow->connection.queued = true;
    port->next_ready = NULL;
    if (list->first)
        list->last->next_ready = port;
    else
        list->first = port;
    list->last = port;
}

sn_port *sn_turn_take_ready(sn_ready_list *list)
{
    sn_port *port = list->first;
    if (port)
        list->first = port->next_ready;
    return port;
}

void sn_turn_pull(sn_turn *t, sn_port *port)
{
    if (port->is_pulled)
        return;
    port->is_pulled = true;
    port->next_pulled = NULL;
    if (t->first_pulled)
        t->last_pulled->next_pulled = port;
    else
        t->first_pulled = port;
    t->last_pulled = port;
}

sn_port *sn_turn_take_pulled(sn_turn *t)
{
    sn_port *port = t->first_pulled;
    if (port) {
        t->first_pulled = port->next_pulled;
        port->is_pulled = false;
    }
    return port;
}

void sn_turn_note(sn_turn *t, sn_port *port, uint32_t note)
{
    if (port->notes == 0) {
        port->next_noted = t->first_noted;
        t->first_noted = port;
    }
    port->notes |= note;
    t->reasons |= SN_TURN_NOTES;
}

sn_port *sn_turn_take_noted(sn_turn *t)
{
    sn_port *port = t->first_noted;
    if (port)
        t->first_noted = port->next_noted;
    return port;
}

void sn_turn_clear(sn_turn *t)
{
    free(t->table);
    free(t->by_fd);
    free(t->timers);
    sn_chunk_free(t->spare);
    t->table = t->by_fd = t->timers = NULL;
    t->timer_count = t->timers_size = 0;
    t->table_size = t->by_fd_size = t->table_used = 0;
    t->spare = NULL;
}
