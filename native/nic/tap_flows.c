#include "nic/tap_flows.h"

#include <stdlib.h>

enum { LEAST_SLOTS = 64 };

sn_tap_flow *sn_tap_flow_new(uint32_t iss)
{
    sn_tap_flow *flow = calloc(1, sizeof *flow);
    if (flow && sn_retransmit_cache_open(&flow->sent, iss)) {
        free(flow);
        return NULL;
    }
    if (flow)
        flow->codecs = -1;
    return flow;
}

void sn_tap_flow_free(sn_tap_flow *flow)
{
    sn_retransmit_cache_close(&flow->sent);
    free(flow);
}

/* The list in which a flow with these addresses is. */
static sn_tap_flow **list_of(const sn_tap_flows *flows, uint32_t peer, uint32_t peer_port, uint32_t port,
                             uint32_t address)
{
    uint64_t hash = ((uint64_t)peer << 32 | peer_port << 16 | port) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 32 ^ address) * UINT64_C(0x9e3779b97f4a7c15);
    return flows->table + (hash >> 32 & (flows->size - 1));
}

static sn_tap_flow **list_with(const sn_tap_flows *flows, const sn_tap_flow *flow)
{
    return list_of(flows, flow->peer, flow->peer_port, flow->port, flow->address);
}

sn_tap_flow *sn_tap_flows_find(const sn_tap_flows *flows, uint32_t peer, uint32_t peer_port, uint32_t port,
                               uint32_t address)
{
    if (flows->count == 0)
        return NULL;
    sn_tap_flow *flow = *list_of(flows, peer, peer_port, port, address);
    while (flow && (flow->peer != peer || flow->peer_port != peer_port || flow->port != port ||
                    flow->address != address))
        flow = flow->next;
    return flow;
}

static void put(sn_tap_flows *flows, sn_tap_flow *flow)
{
    sn_tap_flow **list = list_with(flows, flow);
    flow->next = *list;
    *list = flow;
}

/* Has a slot for each flow and one more. Returns -1 if there is no memory. */
static int grow(sn_tap_flows *flows)
{
    if (flows->count < flows->size)
        return 0;
    const sn_tap_flows old = *flows;
    const uint32_t size = old.size ? 2 * old.size : LEAST_SLOTS;
    sn_tap_flow **table = calloc(size, sizeof *table);
    if (table == NULL)
        return -1;
    flows->table = table;
    flows->size = size;
    for (uint32_t i = 0; i < old.size; i++)
        for (sn_tap_flow *flow = old.table[i], *next; flow; flow = next) {
            next = flow->next;
            put(flows, flow);
        }
    free(old.table);
    return 0;
}

int sn_tap_flows_add(sn_tap_flows *flows, sn_tap_flow *flow)
{
    if (grow(flows))
        return -1;
    put(flows, flow);
    flows->count++;
    return 0;
}

void sn_tap_flows_remove(sn_tap_flows *flows, sn_tap_flow *flow)
{
    sn_tap_flow **at = list_with(flows, flow);
    while (*at != flow)
        at = &(*at)->next;
    *at = flow->next;
    flows->count--;
    if (flows->sending == flow)
        flows->sending = NULL;
}

sn_tap_flow *sn_tap_flows_idlest(const sn_tap_flows *flows)
{
    sn_tap_flow *idlest = NULL;
    for (uint32_t i = 0; i < flows->size; i++)
        for (sn_tap_flow *flow = flows->table[i]; flow; flow = flow->next)
            if (idlest == NULL || flow->seen_at < idlest->seen_at)
                idlest = flow;
    return idlest;
}

void sn_tap_flows_clear(sn_tap_flows *flows)
{
    free(flows->table);
    *flows = (sn_tap_flows){0};
}
