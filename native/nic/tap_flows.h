/* The connections of a kernel, by their addresses. Python decides when one begins and ends
   (softnic/tapnic/flows.py), and owns its memory. */
#ifndef SOFTNIC_TAP_FLOWS_H
#define SOFTNIC_TAP_FLOWS_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "nic/nic_flow.h"
#include "nic/retransmit_cache.h"
/* all */

typedef struct sn_tap_flow {
    uint32_t peer;
    uint32_t address; /* the kernel's */
    uint16_t peer_port;
    uint16_t port;
    bool answered;  /* the peer has sent something after the kernel's SYN */
    int64_t codecs; /* bitmap of those that both ends have; -1: plain bytes only */
    int64_t mss;    /* TCP payload and options that the peer accepts in a segment */
    double seen_at; /* when the kernel last sent a segment */
    int64_t bytes_sent; /* original bytes, retransmissions included */
    int64_t bytes_received;
    sn_nic_flow nic;
    sn_retransmit_cache sent;
    struct sn_tap_flow *next; /* in the table */
} sn_tap_flow;

typedef struct {
    sn_tap_flow **table;
    uint32_t size; /* a power of two, or 0 */
    uint32_t count;
    sn_tap_flow *sending; /* the one whose packet is being sent; NULL: it has none, or it was removed */
} sn_tap_flows;

/* Returns a flow whose SYN has the number `iss`, or NULL if there is no memory. */
sn_tap_flow *sn_tap_flow_new(uint32_t iss);
void sn_tap_flow_free(sn_tap_flow *flow);

/* The flow with these addresses, or NULL. */
sn_tap_flow *sn_tap_flows_find(const sn_tap_flows *flows, uint32_t peer, uint32_t peer_port, uint32_t port,
                               uint32_t address);

/* Adds a flow whose addresses are set and new. Returns -1 if there is no memory. */
int sn_tap_flows_add(sn_tap_flows *flows, sn_tap_flow *flow);

/* Removes a flow that is there. What is left of a packet of it is not sent. */
void sn_tap_flows_remove(sn_tap_flows *flows, sn_tap_flow *flow);

/* The flow of which the kernel has sent nothing for the longest time; NULL: there is none. */
sn_tap_flow *sn_tap_flows_idlest(const sn_tap_flows *flows);

/* Frees the table, not the flows. */
void sn_tap_flows_clear(sn_tap_flows *flows);

#endif
