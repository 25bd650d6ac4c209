/* What is sent, from flows to the wire. */
#include "nic/turn.h"

#include "tcp/flow_steps.h"
#include "nic/headers.h"
#include "nic/turn_steps.h"

enum {
    HEADERS = 54, /* Ethernet, IPv4 and TCP without options */
    IP_AND_TCP = 40,
    LOOPBACK_TURN = 8 << 20, /* about as much as a busy wire brings in a turn */
    NOT_HERE = -1
};

/* Cuts the segment in `output` into frames, and sends them. Returns false if it cannot be cut. */
static bool emit(sn_turn *t, sn_flow *flow, double now)
{
    const sn_output *out = &t->output;
    const sn_turn_transmit *tx = &t->tx;
    sn_nic_flow *path = &flow->nic_flow;
    const bool offloaded = out->end > out->start && sn_turn_is_tagged(t, out->tos) && path->codec >= 0;
    const int64_t path_mtu = flow->connection.path_mtu;
    uint8_t header[MAX_HEADER], destination[6];
    for (int byte = 0; byte < 6; byte++)
        destination[byte] = (uint8_t)(path->destination >> (40 - 8 * byte));
    sn_cut_plan *plan = tx->plan;
    plan->header_length = sn_flow_header(flow, out, destination, t->mac, t->identification, header);
    plan->max_payload = (uint32_t)(path_mtu ? path_mtu : t->mtu) - IP_AND_TCP - (plan->header_length - HEADERS);
    plan->codec = offloaded ? (int32_t)path->codec : -1;
    plan->parameter = offloaded ? (int32_t)path->parameter : 0;
    plan->raw = 0;
    plan->block_offset = out->block_offset;
    plan->max_frames = out->frames < tx->frames ? (uint32_t)out->frames : tx->frames;
    const bool again = out->start < flow->send.snd_nxt;
    if (!sn_turn_cut(t, path, again, header, out->data, (uint64_t)(out->end - out->start)))
        return false;
    t->identification = (uint16_t)(t->identification + tx->result->frames);
    t->counts.host_segments_sent++;
    if (!path->is_loopback)
        sn_turn_send_frames(t, path, now);
    if (sn_is_captured(t->capture))
        sn_capture_sent(t->capture, flow, out, tx->result->consumed, t->packet_id, now);
    return true;
}

/* Whether what a flow sends next can be sent here: its path is known, and the codec of its tag. */
static bool is_prepared(const sn_turn *t, const sn_flow *flow, double now)
{
    if (flow->nic_flow.path_epoch != t->path_epoch || now >= flow->nic_flow.path_until)
        return false;
    const int64_t next = sn_flow_next_sent(flow);
    return next >= flow->send_buffer.end ||
           sn_send_buffer_tag_range(&flow->send_buffer, next)->tag == flow->nic_flow.tag;
}

static bool prepare(sn_turn *t, sn_flow *flow, double now)
{
    if (!flow->connection.established)
        return false;
    if (!is_prepared(t, flow, now))
        t->control.prepare(t->owner, flow, now);
    return is_prepared(t, flow, now);
}

/* Sends the segment of a flow that is most urgent. Returns the wire bytes, or NOT_HERE; `again`: another one may follow. */
static int64_t transmit_one(sn_turn *t, sn_flow *flow, int64_t frames, double now, bool *again)
{
    const sn_cut_result *cut = t->tx.result;
    uint32_t left = sn_flow_output(flow, frames, t->link_full_at, now, &t->output);
    *again = left & SN_AGAIN;
    if (left == 0 || ((left & (SN_DATA | SN_ACK)) && !emit(t, flow, now)))
        return NOT_HERE;
    if (left & SN_DATA)
        left |= sn_flow_sent(flow, &t->output, (int64_t)cut->consumed, cut->frames, (int64_t)cut->frame_bytes, now);
    if (left & SN_SCHEDULE)
        sn_schedule_timers(t->schedule, flow);
    if (!(left & (SN_DATA | SN_ACK)))
        return 0;
    t->counts.host_fast_path_sent++;
    if (left & SN_ACK) {
        flow->connection.frames_sent += cut->frames;
        flow->connection.wire_bytes_sent += (int64_t)cut->frame_bytes;
    }
    if (flow->nic_flow.is_loopback)
        sn_turn_loop_back(t, now);
    return (int64_t)cut->frame_bytes;
}

/* Sends what is most urgent for a flow. Returns the wire bytes, or NOT_HERE. */
static int64_t transmit(sn_turn *t, sn_flow *flow, int64_t frames, double now)
{
    int64_t sent = 0;
    bool again = prepare(t, flow, now);
    if (!again)
        return NOT_HERE;
    while (again) {
        const int64_t bytes = transmit_one(t, flow, frames, now, &again);
        if (bytes == NOT_HERE) {
            flow->connection.turn_bytes -= sent; /* Python accounts for the rest */
            return NOT_HERE;
        }
        sent += bytes;
    }
    return sent;
}

/* Reports gaps without waiting for the turns of the flows: their peers, who know less than what has arrived, would take more
   for lost. */
static void report_gaps(sn_turn *t, double now)
{
    bool again;
    t->owes_reports = false;
    for (sn_flow *flow = t->schedule->ready.first, *next; flow && !t->failed && !t->wire_is_full; flow = next) {
        next = flow->scheduling.next;
        if (flow->connection.dup_acks_pending &&
            (!is_prepared(t, flow, now) || transmit_one(t, flow, 1, now, &again) == NOT_HERE) && !t->failed)
            t->control.acknowledge(t->owner, flow, now);
    }
}

int64_t sn_turn_serve(sn_turn *t, sn_ready_ring *ring, int64_t space, double now)
{
    sn_flow *flow = ring->first;
    const int64_t sent = transmit(t, flow, sn_schedule_frames(ring, space), now);
    if (sent == NOT_HERE)
        return t->failed ? 0 : t->control.output(t->owner, ring, space, now);
    sn_schedule_sent(t->schedule, ring, flow, sent);
    return sent;
}

void sn_turn_send_all(sn_turn *t, double now)
{
    sn_schedule *s = t->schedule;
    if (t->tap) {
        sn_turn_send_tap(t, now);
        return;
    }
    t->is_full = false;
    for (int64_t left = LOOPBACK_TURN; s->loopback.first && left > 0 && !t->failed;) {
        left -= sn_turn_serve(t, &s->loopback, SN_LOOPBACK_BYTES, now);
        sn_turn_take_looped(t, now);
    }
    while (s->ready.first && !t->failed) {
        int64_t space = sn_turn_space(t, now);
        if (space <= 0) {
            t->link_full_at = now;
            t->is_full = true;
            return;
        }
        if (t->owes_reports)
            report_gaps(t, now);
        while (s->ready.first && space > 0 && !t->failed && !t->wire_is_full)
            space -= sn_turn_serve(t, &s->ready, space, now);
    }
}
