/* What arrives, from the wire to flows and their readers. */
#include "nic/turn.h"

#include <errno.h>

#include "nic/epoll.h"
#include "nic/headers.h"
#include "nic/turn_steps.h"

enum {
    HEADERS = 54, /* Ethernet, IPv4 and TCP without options */
    MOST_PIECES = 256,
    CHUNK_BYTES = 256 << 10
};

static void set_blocked(sn_turn *t, sn_port *port, bool blocked)
{
    if (blocked != port->blocked) {
        port->blocked = blocked;
        sn_epoll_watch(t->epoll, (int)port->fd, blocked);
    }
}

void sn_turn_push(sn_turn *t, sn_port *port)
{
    if (port->offloaded || port->flow == NULL)
        return;
    const int64_t count = sn_port_push(port, &port->flow->receive_buffer);
    const bool is_left = port->flow->receive_buffer.first != NULL;
    sn_turn_consume(t, port->flow, count);
    if (count < 0 || (!is_left && port->flow->receive.eof))
        sn_turn_note(t, port, SN_PORT_WRITE); /* an error, or the peer's end, which Python passes on */
    set_blocked(t, port, is_left);
}

/* Space for `size` received bytes behind those that are unread: in the last chunk, or in the spare one. NULL: no memory. */
static sn_chunk *space_for(sn_turn *t, const sn_flow *flow, uint32_t size)
{
    sn_chunk *last = flow->receive_buffer.last;
    if (last && last->size - last->end >= size)
        return last;
    if (t->spare && t->spare->size < size) {
        sn_chunk_free(t->spare);
        t->spare = NULL;
    }
    if (t->spare == NULL)
        t->spare = sn_chunk_new(size < CHUNK_BYTES ? CHUNK_BYTES : size);
    if (t->spare)
        t->spare->start = t->spare->end = 0;
    return t->spare;
}

/* Reads or decodes the payload of a run, `length` bytes. Returns false if it is malformed. */
static bool restore(sn_turn *t, const sn_flow *flow, const sn_run *run, uint8_t *out, uint32_t length, uint32_t *raw)
{
    const sn_batch *batch = &t->batch;
    const sn_payload_ref *first = batch->payloads + run->first;
    uint64_t restored;
    if (!sn_turn_is_tagged(t, run->tos))
        return sn_gather(batch->data, batch->size, first, run->count, out, length) == length;
    return sn_decode_payloads(batch->data, batch->size, first, run->count, (uint32_t)flow->nic_flow.peer_codecs, out,
                              length, &restored, raw) == run->count;
}

/* Writes the payload of a run from where it arrived. Returns how many bytes the application took, or -1. */
static int64_t write_run(const sn_turn *t, const sn_port *port, const sn_run *run)
{
    const sn_payload_ref *payloads = t->batch.payloads + run->first;
    int64_t total = 0;
    for (uint32_t done = 0; done < run->count;) {
        struct iovec pieces[MOST_PIECES];
        uint32_t used = 0;
        int64_t size = 0;
        for (; used < MOST_PIECES && done < run->count; used++, done++) {
            pieces[used] = (struct iovec){t->batch.data + payloads[done].offset, payloads[done].length};
            size += payloads[done].length;
        }
        const int64_t written = sn_port_write(port, pieces, used);
        if (written < 0)
            return -1;
        total += written;
        if (written < size)
            break;
    }
    return total;
}

/* Where the payload of a run goes. */
typedef struct {
    uint8_t *data;
    sn_chunk *chunk; /* that contains `data`; NULL: the steps of a collective wait for it there */
    uint32_t length;
    bool restored;
    bool is_ahead; /* it is kept until the bytes before it have come */
} sn_place;

/* Finds the place of a run's payload. Returns false if there is no memory. */
static bool find_place(sn_turn *t, const sn_flow *flow, uint32_t length, bool is_ahead, sn_place *place)
{
    *place = (sn_place){.length = length, .is_ahead = is_ahead};
    if (is_ahead) {
        place->chunk = sn_reassembly_chunk(length);
        if (place->chunk)
            place->data = place->chunk->data;
        return place->chunk != NULL;
    }
    if (flow->steps && flow->receive_buffer.first == NULL &&
        (place->data = sn_step_queue_place(flow->steps, length)) != NULL)
        return true;
    place->chunk = space_for(t, flow, length);
    if (place->chunk)
        place->data = place->chunk->data + place->chunk->end;
    return place->chunk != NULL;
}

/* Keeps what the reader of a flow did not take of a run. */
static void keep(sn_turn *t, sn_flow *flow, const sn_run *run, const sn_place *place, int64_t taken)
{
    uint32_t raw;
    if (!place->restored)
        restore(t, flow, run, place->data, place->length, &raw);
    if (place->chunk == t->spare)
        t->spare = NULL;
    sn_receive_buffer_keep(&flow->receive_buffer, place->chunk, place->length);
    if (taken > 0)
        sn_receive_buffer_drop(&flow->receive_buffer, taken);
}

/* Passes the payload of a run on to the steps of collectives. */
static void deliver_to_steps(sn_turn *t, sn_flow *flow, const sn_run *run, sn_place *place)
{
    uint32_t raw;
    int64_t taken = 0;
    if (place->chunk == NULL && !place->restored)
        place->restored = restore(t, flow, run, place->data, place->length, &raw);
    if (flow->receive_buffer.first == NULL)
        taken = place->restored ? sn_step_queue_take(flow->steps, place->data, place->length)
                                : sn_turn_take(t, flow, run);
    sn_step_queue_settle(flow->steps);
    if (taken < place->length)
        keep(t, flow, run, place, taken);
    sn_turn_consume(t, flow, taken);
}

/* Compares the payload of a run with the headers that are expected, and keeps what is left. */
static void deliver_to_headers(sn_turn *t, sn_flow *flow, const sn_run *run, sn_place *place)
{
    const sn_payload_ref *payload = t->batch.payloads + run->first;
    int64_t taken = 0;
    if (flow->receive_buffer.first == NULL && !flow->headers->in_python && !place->restored)
        taken = sn_header_queue_take(flow->headers, t->batch.data + payload->offset, payload->length);
    if (taken < place->length)
        keep(t, flow, run, place, taken);
    sn_turn_consume(t, flow, taken);
}

/* Passes the payload of a run on to an application. */
static void deliver_to_port(sn_turn *t, sn_flow *flow, const sn_run *run, const sn_place *place)
{
    sn_port *port = flow->port;
    int64_t taken = 0;
    if (flow->receive_buffer.first == NULL) {
        struct iovec whole = {place->data, place->length};
        taken = place->restored ? sn_port_write(port, &whole, 1) : write_run(t, port, run);
    }
    if (taken < place->length) {
        keep(t, flow, run, place, taken);
        if (taken < 0)
            sn_turn_note(t, port, SN_PORT_WRITE);
        set_blocked(t, port, true);
    }
    sn_turn_consume(t, flow, taken);
}

/* Passes the payload of a run on. */
static void deliver(sn_turn *t, sn_flow *flow, const sn_run *run, sn_place *place)
{
    if (flow->steps) {
        deliver_to_steps(t, flow, run, place);
    } else if (flow->headers) {
        deliver_to_headers(t, flow, run, place);
    } else if (flow->port) {
        deliver_to_port(t, flow, run, place);
    } else {
        keep(t, flow, run, place, 0);
        if (!flow->connection.readable_notified)
            t->control.notify(t->owner, flow, SN_FLOW_READABLE);
    }
}

/* Keeps the payload of a run until the bytes before it have come; without memory, the peer sends it again. */
static void keep_ahead(sn_turn *t, sn_flow *flow, const sn_run *run, sn_place *place)
{
    uint32_t raw;
    if (!place->restored)
        restore(t, flow, run, place->data, place->length, &raw);
    place->chunk->end = place->length;
    if (sn_flow_keep(flow, run->seq, place->chunk))
        sn_chunk_free(place->chunk);
    else
        t->counts.host_out_of_order++;
}

/* Passes on what has waited for the bytes before it; steps and headers of collectives find it in the same turn. */
static void deliver_filled(sn_turn *t, sn_flow *flow)
{
    sn_reassembly_deliver(&flow->reassembly, &flow->receive_buffer);
    if (flow->steps || flow->headers)
        return;
    if (flow->port)
        sn_turn_push(t, flow->port);
    else if (!flow->connection.readable_notified)
        t->control.notify(t->owner, flow, SN_FLOW_READABLE);
}

/* A writer waits for space: has it continue, if a quarter of the buffer is free (softnic/tcp/connection.py). */
static void make_writable(sn_turn *t, sn_flow *flow)
{
    const sn_send_buffer *buffer = &flow->send_buffer;
    const sn_send_tuning *tuning = &flow->send_tuning;
    const bool may_grow = buffer->end - flow->send.snd_nxt < flow->send.mss && buffer->capacity < tuning->most &&
                          flow->scoreboard.delivered >= tuning->next;
    if (may_grow || (flow->port == NULL && !flow->steps)) {
        t->control.notify(t->owner, flow, SN_FLOW_WRITABLE);
    } else if (4 * sn_send_buffer_free(buffer) >= buffer->capacity) {
        flow->connection.wants_space = false; /* steps go on in every turn */
        if (flow->port)
            sn_turn_pull(t, flow->port);
    }
}

static void count_received(sn_turn *t, sn_flow *flow, const sn_run *run, uint32_t length, uint32_t raw)
{
    sn_nic_flow *counts = &flow->nic_flow;
    counts->wire_bytes_received += run->payload_bytes + (int64_t)run->count * (HEADERS + run->options_length);
    t->counts.nic_rx_segments++;
    t->counts.nic_rx_bytes += length;
    t->counts.host_segments_received++;
    t->counts.host_fast_path_received++;
    if (length && sn_turn_is_tagged(t, run->tos)) {
        counts->offload_original_bytes_received += length;
        counts->offload_encoded_bytes_received += run->payload_bytes;
        t->counts.nic_rx_offload_frames += run->count;
        t->counts.nic_rx_offload_original_bytes += length;
        t->counts.nic_rx_offload_encoded_bytes += run->payload_bytes;
        t->counts.nic_rx_offload_raw_frames += raw;
    }
}

/* Whether the payload of a run can be passed on from here. */
static bool can_deliver(const sn_turn *t, const sn_flow *flow, const sn_run *run)
{
    const sn_port *port = flow->port;
    if (port && !flow->steps && !flow->headers &&
        (port->offloaded || !port->output_open || (port->notes & SN_PORT_WRITE)))
        return false;
    return !sn_turn_is_tagged(t, run->tos) || flow->nic_flow.peer_codecs > 0;
}

/* Records a run as TCP gets it. */
static void record(const sn_turn *t, const sn_run *run, const sn_place *place, double now)
{
    const sn_payload_ref whole = {.length = place->length};
    if (place->restored)
        sn_capture_received(t->capture, run, t->batch.data, place->data, &whole, place->length, now);
    else
        sn_capture_received(t->capture, run, t->batch.data, t->batch.data, t->batch.payloads + run->first,
                            place->length, now);
}

/* Processes a run. Returns false, and has changed nothing, if it is Python's. */
static bool take_run(sn_turn *t, const sn_run *run, bool is_looped, double now)
{
    if (run->kind != SN_KIND_TCP || run->dst != t->ip || (run->src == t->ip) != is_looped)
        return false;
    sn_flow *flow = sn_schedule_find(t->schedule, run->src, run->sport, run->dport);
    if (flow == NULL)
        return false;
    const bool tagged = sn_turn_is_tagged(t, run->tos);
    const uint32_t length = tagged && run->payload_bytes ? run->original_bytes : run->payload_bytes;
    sn_segment segment = sn_segment_of(run, t->batch.data, length);
    if (!sn_flow_receives(flow, &segment, now))
        return false;
    sn_place place = {0};
    uint32_t raw = 0;
    if (length) {
        if (!can_deliver(t, flow, run) || !find_place(t, flow, length, sn_flow_is_ahead(flow, &segment), &place))
            return false;
        place.restored = tagged && restore(t, flow, run, place.data, length, &raw);
        if (place.restored != tagged) {
            if (place.is_ahead)
                sn_chunk_free(place.chunk);
            return false;
        }
    }
    count_received(t, flow, run, length, raw);
    if (sn_is_captured(t->capture))
        record(t, run, &place, now);
    uint32_t left = sn_flow_receive(flow, &segment, now);
    t->counts.host_fast_retransmits += (left & SN_RECOVERS) != 0;
    t->counts.host_spurious_retransmits += (left & SN_UNDONE) != 0;
    if (left & SN_WRITABLE)
        make_writable(t, flow);
    if (left & SN_SCHEDULE)
        sn_schedule_timers(t->schedule, flow);
    if (left & SN_WAKE)
        sn_schedule_wake(t->schedule, flow);
    t->owes_reports = t->owes_reports || flow->connection.dup_acks_pending;
    if (left & SN_DELIVER)
        deliver(t, flow, run, &place);
    if (left & SN_KEEP)
        keep_ahead(t, flow, run, &place);
    if (flow->reassembly.ready.first)
        deliver_filled(t, flow);
    return true;
}

void sn_turn_loop_back(sn_turn *t, double now)
{
    const sn_turn_transmit *tx = &t->tx;
    sn_batch *batch = &t->batch; /* runs are read where they were cut */
    const uint32_t frames = tx->result->frames;
    batch->data = tx->data;
    batch->size = tx->size;
    const uint32_t count = sn_parse(batch->data, batch->size, tx->offsets, tx->lengths, frames, t->mac, t->offloads,
                                    batch->payloads, batch->runs);
    uint32_t taken = 0;
    while (taken < count && take_run(t, batch->runs + taken, true, now))
        taken++;
    const uint32_t received = taken < count ? batch->runs[taken].first : frames;
    t->has_looped = true;
    t->counts.nic_loopback_frames += frames;
    t->counts.nic_loopback_wire_bytes += tx->result->frame_bytes;
    t->counts.nic_rx_frames += received;
    t->counts.nic_rx_wire_bytes += sn_sum_lengths(tx->lengths, received);
    if (received < frames)
        t->control.loop(t->owner, received);
}

/* Whether each sender of the batch has the MAC address that it had before. */
static bool knows_senders(const sn_turn *t)
{
    for (uint32_t i = 0; i < t->rx.found->sources; i++) {
        const sn_source *source = &t->rx.sources[i];
        const uint8_t *mac = t->rx.data + t->rx.offsets[source->first] + 6;
        if (sn_mac_number(mac) != t->peer_macs[source->peer])
            return false;
    }
    return true;
}

/* Opens the batch that the channel has. Returns false if the control plane has failed. */
static bool open_batch(sn_turn *t, double now)
{
    sn_secure_queues *queues = &t->channel->queues;
    sn_secure_begin(t->channel);
    t->counts.nic_rx_steered_frames += queues->passed;
    t->counts.nic_rx_drop_steered += queues->dropped;
    t->counts.nic_rx_frames += queues->dropped;
    queues->passed = queues->dropped = 0;
    while (!t->failed && sn_secure_open(t->channel, now))
        t->control.examine(t->owner, now);
    return !t->failed;
}

/* Takes frames that have come over the wire as the batch, all of the same memory. */
static void take_frames(sn_turn *t, uint8_t *data, uint64_t size, const uint32_t *offsets, const uint32_t *lengths,
                        uint32_t frames, double now)
{
    t->batch.data = data;
    t->batch.size = size;
    t->batch.offsets = offsets;
    t->batch.lengths = lengths;
    t->batch.is_looped = false;
    t->counts.link_received_frames += frames;
    t->counts.link_received_bytes += sn_sum_lengths(lengths, frames);
    if (sn_is_captured(t->capture))
        sn_capture_frames(t->capture, SN_CAPTURE_INBOUND, 0, data, offsets, lengths, frames, now);
}

/* Reads a batch from the kernel. Returns the number of its frames; 0: there are none, but more may wait. */
static uint32_t read_batch(sn_turn *t, double now)
{
    const sn_turn_receive *rx = &t->rx;
    const int error = sn_vxlan_receive(t->wire, t->vni, t->peers, t->peer_count, rx->data, rx->slot, rx->messages,
                                       rx->offsets, rx->lengths, rx->frames, rx->sources, rx->found);
    if (error == -ECONNREFUSED)
        return 0; /* the error of a datagram to a dead peer, now cleared */
    if (error || rx->found->messages < rx->messages)
        t->wire_readable = false;
    if (error || rx->found->messages == 0 || (t->channel && !open_batch(t, now)))
        return 0;
    if (rx->found->malformed || rx->found->unknown || !knows_senders(t))
        return t->control.receive(t->owner, true, now);
    take_frames(t, rx->data, rx->size, rx->offsets, rx->lengths, rx->found->frames, now);
    return rx->found->frames;
}

/* Takes the frames that other queues have passed on. Returns their number. */
static uint32_t take_inbox(sn_turn *t)
{
    sn_batch *batch = &t->batch;
    uint32_t *offsets, *lengths;
    const uint32_t frames = sn_inbox_take(t->inboxes[t->queue], &batch->data, &batch->size, &offsets, &lengths);
    t->has_inbox = false;
    batch->is_looped = false;
    batch->offsets = offsets;
    batch->lengths = lengths;
    return frames;
}

/* Opens the datagrams that other queues have passed on. Returns the number of frames. */
static uint32_t take_sealed(sn_turn *t, double now)
{
    sn_secure_channel *channel = t->channel;
    const sn_datagrams read = channel->batch;
    uint64_t size = 0;
    uint32_t frames = 0;
    t->has_sealed = false;
    if (sn_secure_take(channel, &size) && open_batch(t, now)) {
        const sn_datagrams *passed = &channel->batch;
        frames = passed->received->frames;
        take_frames(t, passed->data, size, passed->offsets, passed->lengths, frames, now);
    }
    channel->batch = read;
    return frames;
}

/* Passes a run that has arrived here on to its queue, unless it is this one's, or is to be dropped. */
static void steer(sn_turn *t, const sn_batch *batch, sn_run *run)
{
    if (run->kind >= SN_DROP_FRAME)
        return;
    const uint32_t queue =
        run->kind == SN_KIND_TCP ? sn_queue_of(run->src, run->dst, run->sport, run->dport, t->queues) : 0;
    if (queue == t->queue)
        return;
    const uint32_t *lengths = batch->lengths + run->first;
    const uint32_t taken =
        sn_inbox_put(t->inboxes[queue], batch->data, batch->offsets + run->first, lengths, run->count);
    t->counts.nic_rx_frames -= taken; /* it counts them */
    t->counts.nic_rx_wire_bytes -= sn_sum_lengths(lengths, taken);
    t->counts.nic_rx_steered_frames += taken;
    t->counts.nic_rx_drop_steered += run->count - taken;
    run->kind = SN_KIND_STEERED;
}

void sn_turn_take_batch(sn_turn *t, uint32_t frames, double now)
{
    const sn_batch batch = t->batch;
    t->counts.nic_rx_frames += frames;
    t->counts.nic_rx_wire_bytes += sn_sum_lengths(batch.lengths, frames);
    const uint32_t count = sn_parse(batch.data, batch.size, batch.offsets, batch.lengths, frames, t->mac, t->offloads,
                                    batch.payloads, batch.runs);
    if (t->queues > 1 && !batch.is_looped && !batch.is_steered)
        for (uint32_t i = 0; i < count; i++)
            steer(t, &batch, batch.runs + i);
    for (uint32_t i = 0; i < count && !t->failed; i++) {
        if (batch.runs[i].kind == SN_KIND_STEERED)
            continue;
        if (t->tap ? !sn_turn_receive_tap(t, i, now) : !take_run(t, batch.runs + i, batch.is_looped, now))
            t->control.run(t->owner, i, now);
    }
}

void sn_turn_take_looped(sn_turn *t, double now)
{
    while (t->has_frames && !t->failed) {
        const uint32_t frames = t->control.receive(t->owner, false, now);
        if (frames)
            sn_turn_take_batch(t, frames, now);
        t->has_looped = true;
    }
}

void sn_turn_take_batches(sn_turn *t, double now)
{
    for (int i = 0; i < SN_MOST_BATCHES && !t->failed; i++) {
        uint32_t frames;
        t->batch.is_steered = t->has_inbox;
        if (t->has_inbox)
            frames = take_inbox(t);
        else if (t->has_sealed)
            frames = take_sealed(t, now);
        else if (t->has_frames || (t->in_python && (t->wire < 0 || t->wire_readable)))
            frames = t->control.receive(t->owner, false, now);
        else if (t->wire_readable)
            frames = read_batch(t, now);
        else
            return;
        if (frames)
            sn_turn_take_batch(t, frames, now);
        else if (t->wire < 0)
            return;
    }
}
