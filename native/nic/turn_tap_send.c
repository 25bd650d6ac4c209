/* What a kernel sends, from its TAP device to the wire. */
#include <stdlib.h>
#include <string.h>

#include "codecs/codecs.h"
#include "nic/headers.h"
#include "nic/turn_steps.h"

enum {
    HEADERS = 54, /* Ethernet, IPv4 and TCP without options */
    TIMESTAMPS = 12,
    IP_AND_TCP = 40,
    MOST_READS = 64, /* of the device, in one turn */
    ECN = 0x03 /* bits of the ToS */
};

void sn_tap_nic_clear(sn_tap_nic *tap)
{
    free(tap->sending.parts.items);
    free(tap->decoded);
    tap->sending.parts = (sn_tx_parts){0};
    tap->decoded = NULL;
    tap->decoded_size = 0;
}

static uint8_t *header_of(const sn_tap_nic *tap, const sn_tap_packet *packet) { return tap->headers + packet->header; }

/* The path of frames behind a header; NULL: Python sends them. */
static const sn_nic_flow *find_path(sn_turn *t, sn_nic_flow *path, const uint8_t *header, double now)
{
    const int64_t destination = (int64_t)sn_mac_number(header);
    if (path->path_epoch == t->path_epoch && path->destination == destination)
        return path;
    const sn_turn_path *known = sn_turn_path_to(t, header);
    path->destination = destination;
    path->path_epoch = 0;
    if (known) {
        path->peer = known->peer;
        path->gso = known->gso;
    } else if (t->in_python || !t->tap->control.find_path(t->owner, path, now)) {
        return NULL;
    }
    path->path_epoch = t->path_epoch;
    return path;
}

/* Records what was sent of a segment of `length` bytes. */
static void record(const sn_turn *t, const uint8_t *header, uint32_t header_length, const uint8_t *payload,
                   uint64_t length, double now)
{
    static const uint8_t stamps[] = {1, 1, 8, 10};
    const uint8_t *ip = header + ETHERNET_HEADER, *tcp = ip + IPV4_HEADER, *options = tcp + TCP_HEADER;
    const bool has_timestamps = header_length == HEADERS + TIMESTAMPS && !memcmp(options, stamps, sizeof stamps);
    if ((header_length != HEADERS && !has_timestamps) || tcp[TCP_FLAGS] & TCP_SYN) {
        t->tap->control.record(t->owner, SN_CAPTURE_OUTBOUND, header, header_length, payload, length, now);
        return;
    }
    const uint64_t consumed = t->tx.result->consumed;
    const sn_segment_fields fields = {
        .src = sn_load32be(ip + IPV4_SOURCE),
        .dst = sn_load32be(ip + IPV4_DESTINATION),
        .sport = sn_load16be(tcp + TCP_SPORT),
        .dport = sn_load16be(tcp + TCP_DPORT),
        .seq = sn_load32be(tcp + TCP_SEQ),
        .ack = sn_load32be(tcp + TCP_ACK),
        .window = sn_load16be(tcp + TCP_WINDOW),
        .flags = consumed < length ? tcp[TCP_FLAGS] & (uint8_t)~(TCP_PSH | TCP_FIN) : tcp[TCP_FLAGS],
        .tos = ip[IPV4_TOS],
        .has_timestamps = has_timestamps,
        .ts_value = has_timestamps ? sn_load32be(options + 4) : 0,
        .ts_echo = has_timestamps ? sn_load32be(options + 8) : 0,
    };
    sn_capture_outgoing(t->capture, &fields, payload, consumed, t->tx.packet_id, now);
}

/* Writes the header of a part, from its first byte that was not sent on. */
static void write_header(const sn_turn *t, const sn_tap_packet *packet, const sn_tx_part *part, uint8_t *header)
{
    const sn_tap_sending *sending = &t->tap->sending;
    uint8_t *tcp = header + ETHERNET_HEADER + IPV4_HEADER, *tos = header + ETHERNET_HEADER + IPV4_TOS;
    memcpy(header, header_of(t->tap, packet), packet->header_length);
    sn_store32be(tcp + TCP_SEQ, part->seq + sending->done);
    if (!sending->is_parted)
        return;
    if (part->seq + part->length != packet->seq + packet->length)
        tcp[TCP_FLAGS] &= (uint8_t)~(TCP_PSH | TCP_FIN);
    if (part->tos != SN_PLAIN_BYTES)
        *tos = (uint8_t)((uint32_t)part->tos | (packet->tos & ECN));
    else if (sn_turn_is_tagged(t, packet->tos))
        *tos = packet->tos & ECN;
}

/* Plans the cut of a part. Returns whether an adaptive codec has to do with it. */
static bool plan_part(sn_turn *t, const sn_tap_packet *packet, const sn_tx_part *part, int64_t space)
{
    sn_tap_nic *tap = t->tap;
    sn_cut_plan *plan = t->tx.plan;
    const sn_tap_flow *flow = tap->flows->sending;
    const int64_t frames = space / (t->mtu + ETHERNET_HEADER);
    plan->header_length = packet->header_length;
    plan->max_payload = tap->sending.max_payload;
    plan->codec = -1;
    plan->parameter = 0;
    plan->raw = 0;
    plan->block_offset = (part->block_offset + tap->sending.done) % SN_LONGEST_BLOCK;
    plan->max_frames = frames < 1 ? 1 : frames < t->tx.frames ? (uint32_t)frames : t->tx.frames;
    if (part->tos == SN_PLAIN_BYTES)
        return false;
    const sn_tap_codec *codec = tap->codecs + (part->tos >> 2);
    plan->codec = SN_RAW;
    if (!part->coded || !(flow->codecs >> codec->codec & 1))
        return false;
    plan->codec = codec->codec;
    plan->parameter = codec->parameter;
    return codec->is_adaptive;
}

/* Cuts what is left of a part into frames, and sends as many as there is space for. Returns the bytes that they have,
   or -1 if it cannot be cut. */
static int64_t send_frames(sn_turn *t, const sn_tap_packet *packet, const sn_tx_part *part, int64_t space, double now)
{
    sn_tap_nic *tap = t->tap;
    sn_tap_flow *flow = tap->flows->sending;
    sn_nic_flow *path = flow ? &flow->nic : &tap->unknown;
    const uint8_t *payload = part->payload + tap->sending.done;
    const uint32_t length = part->length - tap->sending.done;
    const bool is_adaptive = plan_part(t, packet, part, space);
    uint8_t header[MAX_HEADER];
    write_header(t, packet, part, header);
    if (is_adaptive)
        t->tx.plan->raw = !tap->control.encodes(t->owner, flow, (uint32_t)part->tos);
    if (!sn_turn_cut(t, path, false, header, payload, length)) /* what its kernel sends again is not told apart */
        return -1;
    if (is_adaptive)
        tap->control.encoded(t->owner, flow, t->tx.result->frames >= t->tx.plan->max_frames, now);
    if (part->tos != SN_PLAIN_BYTES && !part->coded)
        t->counts.tap_tx_exact_bytes += t->tx.result->consumed;
    if (sn_mac_number(header) == sn_mac_number(t->mac)) {
        t->counts.nic_loopback_frames += t->tx.result->frames; /* a kernel sends nothing to itself by a device */
        t->counts.nic_loopback_wire_bytes += t->tx.result->frame_bytes;
    } else {
        sn_turn_send_frames(t, find_path(t, path, header, now), now);
    }
    if (sn_is_captured(t->capture))
        record(t, header, packet->header_length, payload, length, now);
    return (int64_t)t->tx.result->consumed;
}

/* Sends what is left of a packet. Returns false if the link has no space for all of it. */
static bool send_parts(sn_turn *t, const sn_tap_packet *packet, double now)
{
    sn_tap_sending *sending = &t->tap->sending;
    while (sending->part < sending->parts.count) {
        const sn_tx_part *part = sending->parts.items + sending->part;
        const int64_t space = sn_turn_space(t, now);
        if (space <= 0 || t->failed)
            return false;
        const int64_t sent = send_frames(t, packet, part, space, now);
        if (sent < 0 || (sent == 0 && part->length > 0)) {
            t->counts.tap_tx_drop_header++;
            return true;
        }
        sending->done += (uint32_t)sent;
        if (sending->done == part->length) {
            sending->part++;
            sending->done = 0;
        }
    }
    return true;
}

/* Sends a frame that is not TCP as it is. */
static void send_other(sn_turn *t, const sn_tap_packet *packet, double now)
{
    const uint8_t *frame = t->tap->buffer + packet->offset;
    const sn_turn_transmit *tx = &t->tx;
    if (sn_is_captured(t->capture))
        sn_capture_host_frame(t->capture, SN_CAPTURE_OUTBOUND, frame, packet->length, now);
    if (packet->length < ETHERNET_HEADER || packet->length > t->mtu + ETHERNET_HEADER) {
        t->counts.nic_tx_drop_length++;
        return;
    }
    memcpy(tx->data + SN_HEADROOM, frame, packet->length);
    tx->offsets[0] = SN_HEADROOM;
    tx->lengths[0] = packet->length;
    *tx->result = (sn_cut_result){.frames = 1, .frame_bytes = packet->length};
    t->tx.packet_id = 0;
    t->counts.nic_tx_other_frames++;
    t->counts.nic_tx_frames++;
    t->counts.nic_tx_wire_bytes += packet->length;
    sn_turn_send_frames(t, find_path(t, &t->tap->unknown, frame, now), now);
}

/* The TCP payload bytes that a frame of a flow may carry behind a header of this size. */
static int64_t most_payload(const sn_turn *t, const sn_tap_flow *flow, const sn_tap_packet *packet)
{
    int64_t limit = (int64_t)t->mtu - IP_AND_TCP;
    if (flow && flow->mss < limit)
        limit = flow->mss;
    limit -= packet->header_length - HEADERS;
    return packet->segment && packet->segment < limit ? packet->segment : limit;
}

/* Sends a packet as one part, from `seq` on. */
static int make_whole(sn_tap_sending *sending, const uint8_t *payload, uint32_t length, uint32_t seq)
{
    if (sending->parts.capacity == 0) {
        sending->parts.items = malloc(sizeof(sn_tx_part));
        if (sending->parts.items == NULL)
            return -1;
        sending->parts.capacity = 1;
    }
    sending->parts.items[0] = (sn_tx_part){payload, length, seq, SN_PLAIN_BYTES, 0, false};
    sending->parts.count = 1;
    return 0;
}

/* Finds the parts of a segment to a peer that decodes. Returns -1 if there is no memory. */
static int make_parts(sn_turn *t, sn_tap_flow *flow, const sn_tap_packet *packet)
{
    sn_tap_nic *tap = t->tap;
    sn_tap_sending *sending = &tap->sending;
    const bool tagged = sn_turn_is_tagged(t, packet->tos);
    const sn_tx_segment segment = {
        .seq = packet->seq,
        .payload = tap->buffer + packet->offset,
        .length = packet->length,
        .tos = tagged ? packet->tos & ~ECN : SN_PLAIN_BYTES,
        .block = tap->codecs[packet->tos >> 2].block,
    };
    if (sn_retransmit_parts(&flow->sent, &segment, &sending->parts))
        return -1;
    sending->is_parted = sending->parts.count > 0;
    if (sending->is_parted) {
        if (sending->max_payload < SN_LEAST_MAX_PAYLOAD)
            sending->max_payload = SN_LEAST_MAX_PAYLOAD;
        return 0;
    }
    /* All is acknowledged. The peer may have missed the FIN, and answers in any case. */
    sending->max_payload = 1;
    return make_whole(sending, segment.payload, 0,
                      packet->flags & TCP_FIN ? packet->seq + packet->length : packet->seq);
}

/* Whether Python decides about a segment: it opens or ends a connection, or has a tag and no connection. */
static bool is_decision(const sn_turn *t, const sn_tap_packet *packet)
{
    if (packet->flags & (TCP_SYN | TCP_FIN | TCP_RST))
        return true;
    return packet->length && sn_turn_is_tagged(t, packet->tos) &&
           !sn_tap_flows_find(t->tap->flows, packet->dst, packet->dport, packet->sport, packet->src);
}

/* Begins with a TCP segment. Returns false if nothing of it is to be sent. */
static bool begin(sn_turn *t, uint32_t index, double now)
{
    sn_tap_nic *tap = t->tap;
    sn_tap_sending *sending = &tap->sending;
    const sn_tap_packet *packet = tap->packets + index;
    if (is_decision(t, packet) && !tap->control.outgoing(t->owner, index, now))
        return false;
    sn_tap_flow *flow = sn_tap_flows_find(tap->flows, packet->dst, packet->dport, packet->sport, packet->src);
    const int64_t max_payload = most_payload(t, flow, packet);
    tap->flows->sending = flow;
    sending->has_flow = flow != NULL;
    sending->is_parted = false;
    sending->max_payload = max_payload > 0 ? (uint32_t)max_payload : 0;
    sending->part = sending->done = 0;
    if (flow) {
        flow->seen_at = now;
        flow->bytes_sent += packet->length;
    }
    const bool has_parts = flow && packet->length && flow->codecs >= 0;
    if (has_parts ? make_parts(t, flow, packet)
                  : make_whole(sending, tap->buffer + packet->offset, packet->length, packet->seq)) {
        tap->control.exhausted(t->owner);
        return false;
    }
    if (sending->max_payload == 0) {
        t->counts.tap_tx_drop_header++;
        return false;
    }
    return true;
}

/* Ends the sending of a packet. */
static void end(sn_tap_nic *tap)
{
    if (tap->flows->sending)
        sn_retransmit_give_back(&tap->flows->sending->sent);
    tap->flows->sending = NULL;
    tap->sending.has_begun = false;
    tap->next++;
}

/* Sends the next packet, or what is left of it. Returns false if the link has no space for all of it. */
static bool send_packet(sn_turn *t, double now)
{
    sn_tap_nic *tap = t->tap;
    const uint32_t index = tap->next;
    const sn_tap_packet *packet = tap->packets + index;
    if (packet->kind == SN_KIND_TCP) {
        if (!tap->sending.has_begun && !begin(t, index, now)) {
            end(tap);
            return true;
        }
        tap->sending.has_begun = true;
        const bool is_removed = tap->sending.has_flow && !tap->flows->sending;
        if (!is_removed && !send_parts(t, packet, now))
            return false;
    } else if (packet->kind == SN_KIND_OTHER) {
        if (sn_turn_space(t, now) <= 0)
            return false;
        send_other(t, packet, now);
    } else {
        t->counts.tap_tx_drop_header++;
    }
    end(tap);
    return true;
}

/* Reads packets. Returns false if there are none. */
static bool read_packets(sn_turn *t)
{
    sn_tap_nic *tap = t->tap;
    int more;
    tap->next = tap->count = 0;
    if (!tap->readable)
        return false;
    const int found = sn_tap_read(tap->fd, tap->headers, tap->buffer, tap->size, tap->packets, tap->most, &more);
    tap->readable = more;
    tap->count = found > 0 ? (uint32_t)found : 0;
    for (uint32_t i = 0; i < tap->count; i++)
        t->counts.device_read += tap->packets[i].packets;
    return tap->count > 0;
}

void sn_turn_send_tap(sn_turn *t, double now)
{
    sn_tap_nic *tap = t->tap;
    t->is_full = false;
    for (int reads = 0; !t->failed; reads++) {
        while (tap->next < tap->count && !t->failed) {
            if (!send_packet(t, now)) {
                t->is_full = !t->failed;
                return;
            }
        }
        if (t->failed || reads == MOST_READS)
            return;
        if (tap->readable && sn_turn_space(t, now) <= 0) {
            t->is_full = true;
            return;
        }
        if (!read_packets(t))
            return;
    }
}
