/* The way of frames out of a turn: straight to the kernel, or through an emulated link (softnic/link/emulation.py). */
#include "turn.h"

#include <errno.h>
#include <math.h>

#include "turn_steps.h"

static const sn_turn_path *path_to(const sn_turn *t, const uint8_t *destination)
{
    uint64_t address = 0;
    for (int byte = 0; byte < 6; byte++)
        address = address << 8 | destination[byte];
    for (uint32_t i = 0; i < t->path_count; i++)
        if (t->paths[i].destination == address)
            return &t->paths[i];
    return NULL;
}

void sn_turn_release(sn_turn *t, double now)
{
    sn_emulated_link *link = t->emulated;
    if (!sn_emulated_begins_burst(link, INFINITY, now))
        return;
    const double until = sn_emulated_burst_end(link, now);
    uint32_t count;
    while ((count = sn_emulated_burst(link, until, now, true)) > 0) {
        const sn_turn_path *path = path_to(t, link->destination);
        const int64_t sent = path ? sn_emulated_push(link, count, t->wire, path->address, path->port, (uint32_t)t->vni,
                                                     path->gso)
                                  : -ENOENT;
        if (sent <= 0) {
            t->reasons |= SN_TURN_WIRE;
            return;
        }
        t->counts.link_sent_frames += (uint64_t)sent;
        t->counts.link_sent_bytes += link->burst_bytes;
    }
}

static void send_directly(sn_turn *t, const sn_port *port)
{
    const sn_turn_transmit *tx = &t->tx;
    const int sent = sn_vxlan_send(t->wire, (uint32_t)port->peer_address, (uint16_t)port->peer_port, (uint32_t)t->vni,
                                   tx->data, tx->offsets, tx->lengths, tx->result->frames, port->gso);
    t->accepted = sent > 0 ? (uint32_t)sent : 0;
    t->counts.link_sent_frames += t->accepted;
    t->counts.link_sent_bytes += sn_sum_lengths(tx->lengths, t->accepted);
    if (t->accepted < tx->result->frames)
        t->reasons |= SN_TURN_UNSENT;
}

void sn_turn_send_frames(sn_turn *t, const sn_port *port, double now)
{
    const sn_turn_transmit *tx = &t->tx;
    if (t->cuts_only) {
        t->reasons |= SN_TURN_CUT;
    } else if (t->emulated == NULL) {
        send_directly(t, port);
    } else {
        sn_emulated_send(t->emulated, tx->data, tx->offsets, tx->lengths, tx->result->frames, 0, now);
        sn_turn_release(t, now);
    }
}
