/* The ports of a turn: by file descriptor, and in the list of those to be read. */
#include "nic/turn.h"

#include <stdlib.h>
#include <string.h>

#include "nic/turn_steps.h"

enum { FIRST_SIZE = 64 };

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
    if (grow_by_fd(t, (uint32_t)port->fd))
        return -1;
    port->flow = flow;
    flow->port = port;
    t->by_fd[port->fd] = port;
    return 0;
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

/* Removes a port from the list of those that Python continues with. */
static void unlist_noted(sn_turn *t, const sn_port *port)
{
    for (sn_port **at = &t->first_noted; *at; at = &(*at)->next_noted) {
        if (*at == port) {
            *at = port->next_noted;
            return;
        }
    }
}

void sn_turn_remove(sn_turn *t, sn_port *port)
{
    if (port->flow == NULL)
        return;
    unlist_pulled(t, port);
    unlist_noted(t, port);
    port->notes = 0;
    t->by_fd[port->fd] = NULL;
    port->flow->port = NULL;
    port->flow = NULL;
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

sn_port *sn_turn_take_noted(sn_turn *t)
{
    sn_port *port = t->first_noted;
    if (port)
        t->first_noted = port->next_noted;
    return port;
}

void sn_turn_clear(sn_turn *t)
{
    free(t->by_fd);
    sn_chunk_free(t->spare);
    t->by_fd = NULL;
    t->by_fd_size = 0;
    t->spare = NULL;
}

void sn_turn_consume(sn_turn *t, sn_flow *flow, int64_t count)
{
    if (count > 0 && sn_flow_consume(flow, count)) {
        flow->connection.ack_pending = true;
        sn_schedule_wake(t->schedule, flow);
    }
}
