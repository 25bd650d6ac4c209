/* A segment of a turn becomes frames, and is counted. */
#include "nic/turn_steps.h"

/* The bytes that the frames of a segment may take (softnic/nic/segmenter.py). */
static uint64_t frame_space(const sn_turn *t, uint64_t length, bool offloaded)
{
    const sn_cut_plan *plan = t->tx.plan;
    const uint64_t overhead = SN_HEADROOM + plan->header_length;
    uint64_t frames = (length + plan->max_payload - 1) / plan->max_payload, space;
    if (frames == 0)
        frames = 1;
    if (offloaded) {
        frames = 2 * frames + 1 < plan->max_frames ? 2 * frames + 1 : plan->max_frames;
        space = frames * (overhead + plan->max_payload);
        return space < SN_OFFLOADED_BYTES ? space : SN_OFFLOADED_BYTES;
    }
    if (frames > plan->max_frames)
        frames = plan->max_frames;
    return frames * overhead + (length < frames * plan->max_payload ? length : frames * plan->max_payload);
}

static void count_sent(sn_turn *t, sn_nic_flow *flow, bool again, bool offloaded)
{
    const sn_cut_result *cut = t->tx.result;
    sn_turn_counts *counts = &t->counts;
    t->tx.packet_id = ++t->packet_id;
    counts->nic_tx_segments++;
    counts->nic_tx_bytes += cut->consumed;
    counts->nic_tx_frames += cut->frames;
    counts->nic_tx_wire_bytes += cut->frame_bytes;
    flow->wire_bytes_sent += (int64_t)cut->frame_bytes;
    if (offloaded && !again) {
        flow->offload_original_bytes_sent += (int64_t)cut->consumed;
        flow->offload_encoded_bytes_sent += (int64_t)cut->payload_bytes;
    }
    if (offloaded) {
        counts->nic_tx_offload_frames += cut->frames;
        counts->nic_tx_offload_original_bytes += cut->consumed;
        counts->nic_tx_offload_encoded_bytes += cut->payload_bytes;
        counts->nic_tx_offload_raw_frames += cut->raw_frames;
    }
}

bool sn_turn_cut(sn_turn *t, sn_nic_flow *flow, bool again, const uint8_t *header, const uint8_t *payload,
                 uint64_t length)
{
    const sn_turn_transmit *tx = &t->tx;
    const bool offloaded = tx->plan->codec >= 0;
    const uint64_t space = frame_space(t, length, offloaded);
    if (sn_cut(tx->plan, header, payload, length, tx->data, space < tx->size ? space : tx->size, tx->offsets,
               tx->lengths, tx->result))
        return false;
    count_sent(t, flow, again, offloaded);
    return true;
}
