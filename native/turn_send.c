/* What is sent, from flows to the wire: softnic/tcp/scheduler.py, fast_path.py, softnic/nic/nic.py and segmenter.py, in
   their order. */
#include "turn.h"

#include "flow_steps.h"
#include "headers.h"
#include "turn_steps.h"

enum {
    HEADERS = 54, /* Ethernet, IPv4 and TCP without options */
    IP_AND_TCP = 40,
    LEAST_TURN_BYTES = 16 << 10,
    TURN_BYTES = 128 << 10,
    OFFLOADED_BYTES = 1 << 20,
    LOOPBACK_SEGMENT = 1 << 20,
    LOOPBACK_TURN = 8 << 20, /* about as much as a busy wire brings in a turn */
    BROKEN = -1,
    STOPS = SN_TURN_READY | SN_TURN_UNSENT | SN_TURN_CUT | SN_TURN_LOOPED
};

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
        return space < OFFLOADED_BYTES ? space : OFFLOADED_BYTES;
    }
    if (frames > plan->max_frames)
        frames = plan->max_frames;
    return frames * overhead + (length < frames * plan->max_payload ? length : frames * plan->max_payload);
}

static void count_sent(sn_turn *t, sn_port *port, bool offloaded)
{
    const sn_cut_result *cut = t->tx.result;
    sn_nic_flow *flow = &port->flow->nic_flow;
    sn_turn_counts *counts = &t->counts;
    t->identification = (uint16_t)(t->identification + cut->frames);
    counts->host_segments_sent++;
    counts->nic_tx_segments++;
    counts->nic_tx_bytes += cut->consumed;
    counts->nic_tx_frames += cut->frames;
    counts->nic_tx_wire_bytes += cut->frame_bytes;
    flow->wire_bytes_sent += (int64_t)cut->frame_bytes;
    if (offloaded) {
        flow->offload_original_bytes_sent += (int64_t)cut->consumed;
        flow->offload_encoded_bytes_sent += (int64_t)cut->payload_bytes;
        counts->nic_tx_offload_frames += cut->frames;
        counts->nic_tx_offload_original_bytes += cut->consumed;
        counts->nic_tx_offload_encoded_bytes += cut->payload_bytes;
        counts->nic_tx_offload_raw_frames += cut->raw_frames;
    }
}

/* Cuts the segment in `output` into frames, and sends them. Returns false if it cannot be cut. */
static bool emit(sn_turn *t, sn_port *port, double now)
{
    const sn_output *out = &t->output;
    const sn_turn_transmit *tx = &t->tx;
    const bool offloaded = out->end > out->start && sn_turn_is_tagged(t, out->tos);
    const int64_t path_mtu = port->flow->connection.path_mtu;
    uint8_t header[MAX_HEADER], destination[6];
    for (int byte = 0; byte < 6; byte++)
        destination[byte] = (uint8_t)(port->destination >> (40 - 8 * byte));
    sn_cut_plan *plan = tx->plan;
    plan->header_length = sn_flow_header(port->flow, out, destination, t->mac, t->identification, header);
    plan->max_payload = (uint32_t)(path_mtu ? path_mtu : t->mtu) - IP_AND_TCP - (plan->header_length - HEADERS);
    plan->codec = offloaded ? (int32_t)port->codec : -1;
    plan->parameter = offloaded ? (int32_t)port->parameter : 0;
    plan->raw = 0;
    plan->block_offset = out->block_offset;
    const uint32_t most = port->is_loopback && t->rx.frames < tx->frames ? t->rx.frames : tx->frames;
    plan->max_frames = out->frames < most ? (uint32_t)out->frames : most;
    const uint64_t length = (uint64_t)(out->end - out->start), space = frame_space(t, length, offloaded);
    if (sn_cut(plan, header, out->data, length, tx->data, space < tx->size ? space : tx->size, tx->offsets,
               tx->lengths, tx->result))
        return false;
    count_sent(t, port, offloaded);
    if (!port->is_loopback)
        sn_turn_send_frames(t, port, now);
    return true;
}

/* Whether what a flow sends next can be sent here: its path is known, and the codec of its tag. */
static bool is_prepared(const sn_turn *t, const sn_port *port, double now)
{
    const sn_flow *flow = port->flow;
    if (port->path_epoch != t->path_epoch || now >= port->path_until)
        return false;
    return flow->send.snd_nxt >= flow->send_buffer.end ||
           sn_send_buffer_tag_range(&flow->send_buffer, flow->send.snd_nxt)->tag == port->tag;
}

/* Sends what is most urgent for a flow. Returns the wire bytes, or BROKEN if it is Python's. */
static int64_t transmit(sn_turn *t, sn_port *port, int64_t frames, double now)
{
    sn_flow *flow = port->flow;
    const sn_cut_result *cut = t->tx.result;
    uint32_t left = is_prepared(t, port, now) ? sn_flow_output(flow, frames, t->link_full_at, now, &t->output) : 0;
    if (left == 0 || ((left & (SN_DATA | SN_ACK)) && !emit(t, port, now)))
        return BROKEN;
    if (left & SN_DATA)
        left |= sn_flow_sent(flow, &t->output, (int64_t)cut->consumed, cut->frames, (int64_t)cut->frame_bytes, now);
    if (left & SN_SCHEDULE)
        sn_turn_schedule(t, port);
    if (!(left & (SN_DATA | SN_ACK)))
        return 0;
    t->counts.host_fast_path_sent++;
    if (left & SN_ACK) {
        flow->connection.frames_sent += cut->frames;
        flow->connection.wire_bytes_sent += (int64_t)cut->frame_bytes;
    }
    if (port->is_loopback)
        sn_turn_loop_back(t, now);
    return (int64_t)cut->frame_bytes;
}

/* Lets the first flow of the list send. Returns the wire bytes, or BROKEN. */
static int64_t serve(sn_turn *t, sn_ready_list *list, int64_t space, double now)
{
    sn_port *port = list->first;
    sn_connection *c = &port->flow->connection;
    if (port->next_ready && space > c->turn_bytes)
        space = c->turn_bytes;
    const int64_t frames = space / port->flow->congestion.smss;
    const int64_t sent = transmit(t, port, frames ? frames : 1, now);
    if (sent < 0)
        return sent;
    c->turn_bytes -= sent;
    const bool again = sent && sn_flow_has_output(port->flow);
    if (again && c->turn_bytes >= LEAST_TURN_BYTES)
        return sent;
    sn_turn_take_ready(list);
    if (again) {
        sn_turn_wake(t, port);
        c->turn_bytes = c->turn_bytes + TURN_BYTES > 0 ? c->turn_bytes + TURN_BYTES : 0;
    } else {
        c->queued = false;
        c->turn_bytes = TURN_BYTES;
    }
    return sent;
}

uint32_t sn_turn_output(sn_turn *t, int64_t space, double now)
{
    t->reasons &= ~(uint32_t)STOPS;
    while (t->ready.first && space > 0 && !(t->reasons & STOPS)) {
        const int64_t sent = serve(t, &t->ready, space, now);
        if (sent < 0)
            t->reasons |= SN_TURN_READY;
        else
            space -= sent;
    }
    return t->reasons & STOPS;
}

uint32_t sn_turn_output_loopback(sn_turn *t, double now)
{
    int64_t left = LOOPBACK_TURN;
    t->reasons &= ~(uint32_t)STOPS;
    while (t->ready_loopback.first && left > 0 && !(t->reasons & STOPS)) {
        const int64_t sent = serve(t, &t->ready_loopback, LOOPBACK_SEGMENT, now);
        if (sent < 0)
            t->reasons |= SN_TURN_READY;
        else
            left -= sent;
    }
    return t->reasons & STOPS;
}
