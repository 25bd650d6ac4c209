/* What arrives, from the wire to flows and applications: softnic/nic/nic.py, rx.py, softnic/tcp/fast_path.py and
   daemons/softnicd/streams.py, in their order. */
#include "turn.h"

#include <errno.h>

#include "epoll.h"
#include "headers.h"
#include "turn_steps.h"

enum {
    HEADERS = 54, /* Ethernet, IPv4 and TCP without options */
    MOST_BATCHES = 64,
    MOST_PIECES = 256
};

static void set_blocked(sn_turn *t, sn_port *port, bool blocked)
{
    if (blocked != port->blocked) {
        port->blocked = blocked;
        sn_epoll_watch(t->epoll, (int)port->fd, blocked);
    }
}

void sn_turn_consume(sn_turn *t, sn_port *port, int64_t count)
{
    if (count > 0 && sn_port_consume(port, count)) {
        port->flow->connection.ack_pending = true;
        sn_turn_wake_once(t, port);
    }
}

void sn_turn_push(sn_turn *t, sn_port *port)
{
    if (port->offloaded)
        return;
    int64_t count = sn_port_push(port);
    if (count >= 0)
        sn_turn_consume(t, port, count);
    if (count < 0 || (port->first == NULL && port->flow->receive.eof))
        sn_turn_note(t, port, SN_PORT_WRITE); /* an error, or the peer's end, which Python passes on */
    set_blocked(t, port, port->first != NULL);
}

/* Space for `size` received bytes behind those that are kept: in the last chunk, or in the spare one. NULL: no memory. */
static sn_chunk *space_for(sn_turn *t, const sn_port *port, uint32_t size)
{
    if (port->last && port->last->size - port->last->end >= size)
        return port->last;
    if (t->spare && t->spare->size < size) {
        sn_chunk_free(t->spare);
        t->spare = NULL;
    }
    if (t->spare == NULL)
        t->spare = sn_chunk_new(size);
    if (t->spare)
        t->spare->start = t->spare->end = 0;
    return t->spare;
}

/* Reads or decodes the payload of a run, `length` bytes. Returns false if it is malformed. */
static bool restore(sn_turn *t, const sn_port *port, const sn_run *run, uint8_t *out, uint32_t length, uint32_t *raw)
{
    const sn_payload_ref *first = t->rx.payloads + run->first;
    uint64_t restored;
    if (!sn_turn_is_tagged(t, run->tos))
        return sn_gather(t->rx.data, t->rx.size, first, run->count, out, length) == length;
    return sn_decode_payloads(t->rx.data, t->rx.size, first, run->count, (uint32_t)port->peer_codecs, out, length,
                              &restored, raw) == run->count;
}

/* Writes the payload of a run from where it arrived. Returns how many bytes the application took, or -1. */
static int64_t write_run(const sn_turn *t, const sn_port *port, const sn_run *run)
{
    const sn_payload_ref *payloads = t->rx.payloads + run->first;
    int64_t total = 0;
    for (uint32_t done = 0; done < run->count;) {
        struct iovec pieces[MOST_PIECES];
        uint32_t used = 0;
        int64_t size = 0;
        for (; used < MOST_PIECES && done < run->count; used++, done++) {
            pieces[used] = (struct iovec){t->rx.data + payloads[done].offset, payloads[done].length};
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
} sn_place;

/* Finds the place of a run's payload. Returns false if there is no memory. */
static bool find_place(sn_turn *t, const sn_port *port, uint32_t length, sn_place *place)
{
    *place = (sn_place){.length = length};
    if (port->steps && port->first == NULL && (place->data = sn_step_queue_place(port->steps, length)) != NULL)
        return true;
    place->chunk = space_for(t, port, length);
    if (place->chunk)
        place->data = place->chunk->data + place->chunk->end;
    return place->chunk != NULL;
}

/* Keeps what the reader of a port did not take of a run. */
static void keep(sn_turn *t, sn_port *port, const sn_run *run, const sn_place *place, int64_t taken)
{
    uint32_t raw;
    if (!place->restored)
        restore(t, port, run, place->data, place->length, &raw);
    if (place->chunk == t->spare)
        t->spare = NULL;
    sn_port_keep(port, place->chunk, place->length);
    if (taken > 0)
        sn_port_drop(port, taken);
}

/* Passes the payload of a run on to the steps of collectives. */
static void deliver_to_steps(sn_turn *t, sn_port *port, const sn_run *run, sn_place *place)
{
    uint32_t raw;
    int64_t taken = 0;
    if (place->chunk == NULL && !place->restored)
        place->restored = restore(t, port, run, place->data, place->length, &raw);
    if (port->first == NULL)
        taken = place->restored ? sn_step_queue_take(port->steps, place->data, place->length)
                                : sn_turn_take(t, port, run);
    sn_step_queue_settle(port->steps);
    if (taken < place->length)
        keep(t, port, run, place, taken);
    sn_turn_consume(t, port, taken);
}

/* Compares the payload of a run with the headers that are expected, and keeps what is left. */
static void deliver_to_headers(sn_turn *t, sn_port *port, const sn_run *run, sn_place *place)
{
    const sn_payload_ref *payload = t->rx.payloads + run->first;
    int64_t taken = 0;
    if (port->first == NULL && !port->headers->in_python && !place->restored)
        taken = sn_header_queue_take(port->headers, t->rx.data + payload->offset, payload->length);
    if (taken < place->length)
        keep(t, port, run, place, taken);
    sn_turn_consume(t, port, taken);
}

/* Passes the payload of a run on. */
static void deliver(sn_turn *t, sn_port *port, const sn_run *run, const sn_place *place)
{
    int64_t taken = 0;
    if (port->first == NULL) {
        struct iovec whole = {place->data, place->length};
        taken = place->restored ? sn_port_write(port, &whole, 1) : write_run(t, port, run);
    }
    if (taken < place->length) {
        keep(t, port, run, place, taken);
        if (taken < 0)
            sn_turn_note(t, port, SN_PORT_WRITE);
        set_blocked(t, port, true);
    }
    sn_turn_consume(t, port, taken);
}

/* A writer waits for space: has it continue, if a quarter of the buffer is free (softnic/tcp/connection.py). */
static void make_writable(sn_turn *t, sn_port *port)
{
    sn_flow *flow = port->flow;
    const sn_send_buffer *buffer = &flow->send_buffer;
    const sn_send_tuning *tuning = &flow->send_tuning;
    if (buffer->end - flow->send.snd_nxt < flow->send.mss && buffer->capacity < tuning->most &&
        flow->send.snd_una >= tuning->next) {
        sn_turn_note(t, port, SN_PORT_WRITABLE);
    } else if (4 * sn_send_buffer_free(buffer) >= buffer->capacity) {
        flow->connection.wants_space = false;
        sn_turn_pull(t, port);
    }
}

static void count_received(sn_turn *t, sn_port *port, const sn_run *run, uint32_t length, uint32_t raw)
{
    sn_nic_flow *flow = &port->flow->nic_flow;
    flow->wire_bytes_received += run->payload_bytes + (int64_t)run->count * (HEADERS + run->options_length);
    t->counts.nic_rx_segments++;
    t->counts.nic_rx_bytes += length;
    t->counts.host_segments_received++;
    t->counts.host_fast_path_received++;
    if (length && sn_turn_is_tagged(t, run->tos)) {
        flow->offload_original_bytes_received += length;
        flow->offload_encoded_bytes_received += run->payload_bytes;
        t->counts.nic_rx_offload_frames += run->count;
        t->counts.nic_rx_offload_original_bytes += length;
        t->counts.nic_rx_offload_encoded_bytes += run->payload_bytes;
        t->counts.nic_rx_offload_raw_frames += raw;
    }
}

/* Whether the payload of a run can be passed on from here. */
static bool can_deliver(const sn_turn *t, const sn_port *port, const sn_run *run)
{
    const bool by_engine = port->steps || port->headers;
    if (!by_engine && (port->offloaded || !port->output_open || (port->notes & SN_PORT_WRITE)))
        return false;
    if (port->flow->receive.unread != port->kept)
        return false; /* Python keeps bytes too */
    return !sn_turn_is_tagged(t, run->tos) || port->peer_codecs >= 0;
}

/* Processes a run, which came by the wire or `is_looped`. Returns false, and has changed nothing, if it is Python's. */
static bool take_run(sn_turn *t, const sn_run *run, bool is_looped, double now)
{
    if (run->kind != SN_KIND_TCP || run->dst != t->ip || (run->src == t->ip) != is_looped)
        return false;
    sn_port *port = sn_turn_find(t, run->src, run->sport, run->dport);
    if (port == NULL)
        return false;
    const uint32_t length = sn_turn_is_tagged(t, run->tos) && run->payload_bytes ? run->original_bytes : run->payload_bytes;
    sn_segment segment = sn_segment_of(run, length);
    if (!sn_flow_receives(port->flow, &segment, now))
        return false;
    const bool tagged = sn_turn_is_tagged(t, run->tos);
    sn_place place = {0};
    uint32_t raw = 0;
    if (length) {
        if (!can_deliver(t, port, run) || !find_place(t, port, length, &place))
            return false;
        place.restored = tagged && restore(t, port, run, place.data, length, &raw);
        if (place.restored != tagged)
            return false;
    }
    count_received(t, port, run, length, raw);
    uint32_t left = sn_flow_receive(port->flow, &segment, now);
    if (left & SN_WRITABLE)
        make_writable(t, port);
    if (left & SN_SCHEDULE)
        sn_turn_schedule(t, port);
    if (left & SN_WAKE)
        sn_turn_wake_once(t, port);
    if (left & SN_DELIVER && port->steps)
        deliver_to_steps(t, port, run, &place);
    else if (left & SN_DELIVER && port->headers)
        deliver_to_headers(t, port, run, &place);
    else if (left & SN_DELIVER)
        deliver(t, port, run, &place);
    return true;
}

uint32_t sn_turn_take_runs(sn_turn *t, uint32_t first, uint32_t count, double now)
{
    while (first < count && take_run(t, t->rx.runs + first, false, now))
        first++;
    return first;
}

void sn_turn_loop_back(sn_turn *t, double now)
{
    sn_turn_receive *rx = &t->rx;
    const sn_turn_transmit *tx = &t->tx;
    uint8_t *data = rx->data;
    const uint64_t size = rx->size;
    const uint32_t frames = tx->result->frames;
    rx->data = tx->data; /* runs are read where they were cut */
    rx->size = tx->size;
    const uint32_t count = sn_parse(rx->data, rx->size, tx->offsets, tx->lengths, frames, t->mac, t->offloads,
                                    rx->payloads, rx->runs);
    uint32_t taken = 0;
    while (taken < count && take_run(t, rx->runs + taken, true, now))
        taken++;
    rx->data = data;
    rx->size = size;
    t->looped = taken < count ? rx->runs[taken].first : frames;
    if (t->looped < frames)
        t->reasons |= SN_TURN_LOOPED;
    if (t->looped)
        t->has_looped = true;
    t->counts.nic_loopback_frames += frames;
    t->counts.nic_loopback_wire_bytes += tx->result->frame_bytes;
    t->counts.nic_rx_frames += t->looped;
    t->counts.nic_rx_wire_bytes += sn_sum_lengths(tx->lengths, t->looped);
}

/* Whether each sender of the batch has the MAC address that it had before. */
static bool knows_senders(const sn_turn *t)
{
    for (uint32_t i = 0; i < t->rx.found->sources; i++) {
        const sn_source *source = &t->rx.sources[i];
        const uint8_t *mac = t->rx.data + t->rx.offsets[source->first] + 6;
        uint64_t address = 0;
        for (int byte = 0; byte < 6; byte++)
            address = address << 8 | mac[byte];
        if (address != t->peer_macs[source->peer])
            return false;
    }
    return true;
}

/* Processes the runs of a batch up to the first one that is Python's. */
static void take_batch(sn_turn *t, double now)
{
    const sn_turn_receive *rx = &t->rx;
    const uint32_t frames = rx->found->frames;
    const uint64_t bytes = sn_sum_lengths(rx->lengths, frames);
    t->counts.link_received_frames += frames;
    t->counts.link_received_bytes += bytes;
    t->counts.nic_rx_frames += frames;
    t->counts.nic_rx_wire_bytes += bytes;
    t->run_count = sn_parse(rx->data, rx->size, rx->offsets, rx->lengths, frames, t->mac, t->offloads, rx->payloads,
                            rx->runs);
    t->next_run = sn_turn_take_runs(t, 0, t->run_count, now);
    if (t->next_run < t->run_count)
        t->reasons |= SN_TURN_RUNS;
}

void sn_turn_receive_all(sn_turn *t, double now)
{
    const sn_turn_receive *rx = &t->rx;
    const uint32_t stops = SN_TURN_FRAMES | SN_TURN_RUNS;
    for (int i = 0; i < MOST_BATCHES && t->wire_readable && !(t->reasons & stops); i++) {
        int error = sn_vxlan_receive(t->wire, t->vni, t->peers, t->peer_count, rx->data, rx->slot, rx->messages,
                                     rx->offsets, rx->lengths, rx->frames, rx->sources, rx->found);
        if (error == -ECONNREFUSED)
            continue; /* the error of a datagram to a dead peer, now cleared */
        if (error)
            return;
        if (rx->found->messages < rx->messages)
            t->wire_readable = false;
        if (rx->found->messages == 0)
            return;
        if (rx->found->malformed || rx->found->unknown || !knows_senders(t))
            t->reasons |= SN_TURN_FRAMES;
        else
            take_batch(t, now);
    }
}
