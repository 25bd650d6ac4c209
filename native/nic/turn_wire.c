/* The way of frames out of a turn: straight to the kernel, sealed if there is a key, through an emulated link
   (softnic/link/emulation.py), or through a link in Python. */
#include "nic/turn.h"

#include <errno.h>

#include "nic/emulated_ring.h"
#include "nic/turn_steps.h"

const sn_turn_path *sn_turn_path_to(const sn_turn *t, const uint8_t *destination)
{
    const uint64_t address = sn_mac_number(destination);
    for (uint32_t i = 0; i < t->path_count; i++)
        if (t->paths[i].destination == address)
            return &t->paths[i];
    return NULL;
}

/* Where frames go that leave the emulated link, and when. */
typedef struct {
    const sn_turn *turn;
    uint32_t peer;
    bool gso;
    double now;
} way_out;

/* Passes frames to the kernel. Returns how many it has accepted, or if none, 0 or -errno. */
static int push(const void *context, uint8_t *data, const uint32_t *offsets, const uint32_t *lengths, uint32_t count)
{
    const way_out *way = context;
    const sn_turn *t = way->turn;
    if (t->channel)
        return (int)sn_secure_send(t->channel, t->wire, way->peer, data, offsets, lengths, count, way->gso, way->now);
    return sn_vxlan_send(t->wire, &t->peers[way->peer], (uint32_t)t->vni, data, offsets, lengths, count, way->gso);
}

void sn_turn_release(sn_turn *t, double now)
{
    sn_emulated_link *link = t->emulated;
    if (!sn_emulated_begins_burst(link, now))
        return;
    uint32_t count;
    while ((count = sn_emulated_burst(link, now, true)) > 0) {
        const sn_turn_path *path = sn_turn_path_to(t, link->destination);
        const way_out way = path ? (way_out){t, path->peer, path->gso, now} : (way_out){0};
        const int64_t sent = path ? sn_emulated_push_with(link, count, push, &way) : -ENOENT;
        if (sent <= 0) {
            t->control.release(t->owner, now);
            return;
        }
        t->counts.link_sent_frames += (uint64_t)sent;
        t->counts.link_sent_bytes += link->burst_bytes;
    }
}

static void send_directly(sn_turn *t, const sn_nic_flow *path, double now)
{
    const sn_turn_transmit *tx = &t->tx;
    const uint32_t frames = tx->result->frames;
    const way_out way = {t, (uint32_t)path->peer, path->gso, now};
    const int sent = push(&way, tx->data, tx->offsets, tx->lengths, frames);
    const uint32_t accepted = sent > 0 ? (uint32_t)sent : 0;
    t->counts.link_sent_frames += accepted;
    t->counts.link_sent_bytes += sn_sum_lengths(tx->lengths, accepted);
    if (accepted < frames)
        t->control.send(t->owner, accepted, now);
}

void sn_turn_send_frames(sn_turn *t, const sn_nic_flow *path, double now)
{
    const sn_turn_transmit *tx = &t->tx;
    if (sn_is_captured(t->capture))
        sn_capture_frames(t->capture, SN_CAPTURE_OUTBOUND, tx->packet_id, tx->data, tx->offsets, tx->lengths,
                          tx->result->frames, now);
    if (t->in_python || t->wire_is_full) {
        t->control.send(t->owner, 0, now);
    } else if (t->emulated) {
        sn_emulated_send(t->emulated, tx->data, tx->offsets, tx->lengths, tx->result->frames, 0, now);
        sn_turn_release(t, now);
    } else if (path == NULL) {
        t->control.send(t->owner, 0, now);
    } else if (t->wire >= 0) {
        send_directly(t, path, now);
    }
}

int64_t sn_turn_space(sn_turn *t, double now)
{
    if (t->in_python || t->wire_is_full)
        return t->control.space(t->owner, now);
    return t->emulated ? sn_emulated_tx_space(t->emulated, now) : SN_LINK_BYTES;
}
