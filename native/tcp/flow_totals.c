/* Sums over flows, for statistics. */
#include "tcp/flow_totals.h"

#include <stdbool.h>

#include "tcp/flow.h"

/* The entry of a peer. The first SN_TOTALS_PEERS peers have one of their own, the others share the last one. */
static sn_peer_totals *entry_of(sn_flow_totals *totals, int64_t peer_ip)
{
    for (uint32_t i = 0; i < totals->peer_count; i++)
        if (totals->peers[i].peer_ip == peer_ip || i == SN_TOTALS_PEERS)
            return &totals->peers[i];
    sn_peer_totals *entry = &totals->peers[totals->peer_count];
    entry->peer_ip = totals->peer_count == SN_TOTALS_PEERS ? -1 : peer_ip;
    totals->peer_count++;
    return entry;
}

void sn_flow_totals_add(sn_flow_totals *totals, const sn_flow *const *flows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const sn_flow *flow = flows[i];
        sn_peer_totals *entry = entry_of(totals, flow->connection.peer_ip);
        int64_t acknowledged = flow->send.snd_una > 1 ? flow->send.snd_una : 1;
        int64_t queued = flow->send_buffer.end - acknowledged;
        double srtt = flow->retransmission_timeout.srtt;
        if (queued > 0) {
            totals->unacknowledged++;
            entry->send_queue += queued;
        }
        entry->flows++;
        entry->receive_queue += flow->receive.unread;
        entry->retransmits += flow->connection.retransmits;
        if (srtt > 0) {
            entry->measured++;
            entry->srtt_sum += srtt;
            if (srtt > entry->srtt_max)
                entry->srtt_max = srtt;
        }
    }
}
