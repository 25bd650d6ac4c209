/* What arrives for a kernel, from the wire to its TAP device. */
#include <stdlib.h>
#include <string.h>

#include "nic/headers.h"
#include "nic/turn_steps.h"

enum { HEADERS = 54 }; /* Ethernet, IPv4 and TCP without options */

/* A run of frames with TCP's segments, as it is passed up. */
typedef struct {
    uint8_t header[MAX_HEADER]; /* of the first frame */
    uint32_t header_length;
    const sn_run *run;
    sn_tap_flow *flow;
} arrival;

/* Bytes that are passed up behind a header. */
typedef struct {
    const uint8_t *data;
    uint64_t size;
    const sn_payload_ref *pieces;
    uint32_t count;
    uint32_t length;  /* of all pieces */
    uint32_t segment; /* as for sn_tap_write */
} content;

/* Memory for bytes of the kernel; NULL: there is none. */
static uint8_t *space_for(sn_tap_nic *tap, uint64_t size)
{
    if (size > tap->decoded_size) {
        uint8_t *larger = realloc(tap->decoded, size);
        if (larger == NULL)
            return NULL;
        tap->decoded = larger;
        tap->decoded_size = size;
    }
    return tap->decoded;
}

/* Records a segment as the kernel gets it. */
static void record(sn_turn *t, const arrival *a, const content *c, double now)
{
    const uint8_t *tcp = a->header + ETHERNET_HEADER + IPV4_HEADER;
    sn_run run = *a->run;
    run.seq = sn_load32be(tcp + TCP_SEQ);
    run.flags = tcp[TCP_FLAGS];
    if (!run.sack_blocks && !(run.flags & TCP_SYN)) {
        sn_capture_received(t->capture, &run, t->batch.data, c->data, c->pieces, c->length, now);
        return;
    }
    uint8_t *whole = c->data == t->tap->decoded ? t->tap->decoded : space_for(t->tap, c->length);
    if (c->length && c->data != whole) {
        if (whole == NULL)
            return;
        sn_gather(c->data, c->size, c->pieces, c->count, whole, c->length);
    }
    t->tap->control.record(t->owner, SN_CAPTURE_INBOUND, a->header, a->header_length, whole, c->length, now);
}

/* Passes bytes up behind the header of a run. */
static void pass_up(sn_turn *t, const arrival *a, const content *c, double now)
{
    uint32_t written;
    t->counts.nic_rx_segments++;
    t->counts.nic_rx_bytes += c->length;
    if (a->flow)
        a->flow->bytes_received += c->length;
    if (sn_tap_write(t->tap->fd, a->header, a->header_length, c->data, c->size, c->pieces, c->count, c->segment,
                     &written))
        t->counts.device_dropped_write += c->count;
    t->counts.device_written += written;
    if (sn_is_captured(t->capture))
        record(t, a, c, now);
}

/* Passes payloads of the batch up as they are. */
static void pass_pieces(sn_turn *t, const arrival *a, uint32_t first, uint32_t count, uint32_t length, double now)
{
    const sn_batch *batch = &t->batch;
    const content pieces = {batch->data, batch->size, batch->payloads + first, count, length, 0};
    pass_up(t, a, &pieces, now);
}

/* Passes payloads up decoded. Returns false if one is malformed or there is no memory. */
static bool pass_decoded(sn_turn *t, const arrival *a, uint32_t first, uint32_t count, uint32_t length,
                         uint32_t original, double now)
{
    const sn_batch *batch = &t->batch;
    sn_nic_flow *counts = &a->flow->nic;
    uint8_t *out = space_for(t->tap, original);
    uint64_t restored;
    uint32_t raw;
    if (out == NULL || sn_decode_payloads(batch->data, batch->size, batch->payloads + first, count,
                                          (uint32_t)a->flow->codecs, out, original, &restored, &raw) != count)
        return false;
    counts->offload_original_bytes_received += original;
    counts->offload_encoded_bytes_received += length;
    t->counts.nic_rx_offload_frames += count;
    t->counts.nic_rx_offload_original_bytes += original;
    t->counts.nic_rx_offload_encoded_bytes += length;
    t->counts.nic_rx_offload_raw_frames += raw;
    const sn_payload_ref whole = {0, original, original};
    const content decoded = {out, original, &whole, 1, original, t->mtu + ETHERNET_HEADER - a->header_length};
    pass_up(t, a, &decoded, now);
    return true;
}

/* Passes a tagged run up: in one piece, or by frame if the peer does not encode or a payload is malformed. */
static void pass_tagged(sn_turn *t, arrival *a, double now)
{
    const sn_run *run = a->run;
    const bool decodes = a->flow->codecs >= 0;
    uint8_t *tcp = a->header + ETHERNET_HEADER + IPV4_HEADER;
    uint32_t seq = run->seq;
    if (decodes && pass_decoded(t, a, run->first, run->count, run->payload_bytes, run->original_bytes, now))
        return;
    for (uint32_t i = run->first; i < run->first + run->count; i++) {
        const sn_payload_ref *piece = t->batch.payloads + i;
        const bool is_last = i == run->first + run->count - 1;
        sn_store32be(tcp + TCP_SEQ, seq);
        tcp[TCP_FLAGS] = is_last ? run->flags : run->flags & (uint8_t)~(TCP_PSH | TCP_FIN);
        if (!decodes)
            pass_pieces(t, a, i, 1, piece->length, now);
        else if (!pass_decoded(t, a, i, 1, piece->length, piece->original, now))
            t->counts.nic_rx_drop_offload++;
        seq += decodes ? piece->original : piece->length;
    }
}

/* Passes frames of the batch up as they are. */
static void pass_frames(sn_turn *t, uint32_t first, uint32_t count, double now)
{
    for (uint32_t i = first; i < first + count; i++) {
        const uint8_t *frame = t->batch.data + t->batch.offsets[i];
        const uint32_t length = t->batch.lengths[i];
        if (sn_is_captured(t->capture))
            sn_capture_host_frame(t->capture, SN_CAPTURE_INBOUND, frame, length, now);
        if (sn_tap_write_frame(t->tap->fd, frame, length))
            t->counts.device_dropped_write++;
        else
            t->counts.device_written++;
    }
}

/* Whether a frame that is no well-formed TCP may be of use to a kernel. */
static bool is_for_kernel(const sn_turn *t, const sn_run *run)
{
    const uint8_t *frame = t->batch.data + t->batch.offsets[run->first];
    if (run->kind == SN_KIND_OTHER)
        return true;
    if (run->kind != SN_DROP_IP && run->kind != SN_DROP_FRAGMENT)
        return false;
    return t->batch.lengths[run->first] <= ETHERNET_HEADER + IPV4_PROTOCOL ||
           frame[ETHERNET_HEADER + IPV4_PROTOCOL] != PROTOCOL_TCP;
}

/* Whether Python decides about a run: it opens or ends a connection, is the first that the peer answers, or has a tag
   and no connection. */
static bool is_decision(const sn_run *run, const sn_tap_flow *flow, bool tagged)
{
    return run->flags & (TCP_SYN | TCP_FIN) || (flow ? !flow->answered : tagged);
}

/* Passes a run of TCP's segments up. */
static void take_run(sn_turn *t, uint32_t index, double now)
{
    const sn_run *run = t->batch.runs + index;
    const uint32_t start = t->batch.offsets[run->first];
    const bool tagged = run->payload_bytes && sn_turn_is_tagged(t, run->tos);
    if (run->options_offset - start != HEADERS) { /* IPv4 options, which no stack sends unasked */
        if (tagged)
            t->counts.tap_rx_drop_header += run->count;
        else
            pass_frames(t, run->first, run->count, now);
        return;
    }
    arrival a = {.header_length = HEADERS + (uint32_t)run->options_length, .run = run};
    a.flow = sn_tap_flows_find(t->tap->flows, run->src, run->sport, run->dport, run->dst);
    if (is_decision(run, a.flow, tagged) && !t->tap->control.incoming(t->owner, index, now))
        return;
    memcpy(a.header, t->batch.data + start, a.header_length);
    a.header[ETHERNET_HEADER + IPV4_HEADER + TCP_FLAGS] = run->flags;
    if (a.flow) {
        sn_retransmit_acknowledge(&a.flow->sent, run->ack);
        a.flow->nic.wire_bytes_received += run->payload_bytes + (int64_t)run->count * a.header_length;
    }
    if (tagged && a.flow)
        pass_tagged(t, &a, now);
    else
        pass_pieces(t, &a, run->first, run->count, run->payload_bytes, now);
}

bool sn_turn_receive_tap(sn_turn *t, uint32_t index, double now)
{
    const sn_run *run = t->batch.runs + index;
    if (run->kind == SN_KIND_TCP) {
        take_run(t, index, now);
    } else if (is_for_kernel(t, run)) {
        t->counts.nic_rx_other_frames++;
        pass_frames(t, run->first, 1, now);
    } else {
        return false;
    }
    return true;
}
