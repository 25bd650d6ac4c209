/* Sums over flows, for statistics: in all, and by peer. */
#ifndef SOFTNIC_FLOW_TOTALS_H
#define SOFTNIC_FLOW_TOTALS_H
/* C only */
#include <stdint.h>

#include "tcp/fast_path.h"
/* all */

enum { SN_TOTALS_PEERS = 32 };

/* The flows to one peer; `peer_ip` is -1 for all peers that have no entry of their own. */
typedef struct {
    int64_t peer_ip;
    int64_t flows;
    int64_t send_queue;    /* bytes written and not acknowledged */
    int64_t receive_queue; /* bytes received in order and not consumed */
    int64_t retransmits;
    int64_t measured; /* flows that have measured a round trip */
    double srtt_sum;  /* seconds, of these */
    double srtt_max;
} sn_peer_totals;

typedef struct {
    int64_t unacknowledged; /* flows with a send queue */
    uint32_t peer_count;
    sn_peer_totals peers[SN_TOTALS_PEERS + 1];
} sn_flow_totals;

/* Adds flows to `totals`, which begins with zeros. */
void sn_flow_totals_add(sn_flow_totals *totals, const sn_flow *const *flows, uint32_t count);

#endif
