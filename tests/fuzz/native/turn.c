/* Turns of a NIC with a hostile peer, programs and collectives. Input: options (1 byte), then operations: 1 byte each, with
   their arguments.

   Five flows: a stream of a program, the blocks and the headers of a collective, all three to the peer, and the two ends of
   a stream of the node to itself. Programs' streams have ports. The peer sends any segments, and any datagrams; programs
   write, read and close; memory of the collective changes while it is sent. What the C asks of the control plane is dropped
   here as if it had been lost, or prepared as Python does. The flows stay in order, they keep as much as was not read, and
   what the stream of the node to itself delivers is what was written. With the last option the wire is encrypted: whatever
   leaves is sealed, with a counter that was not used before. With another one, an emulated link in front of it loses,
   doubles, delays and damages frames. */
#define _GNU_SOURCE
#include "nic/turn.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cipher.h"
#include "connection.h"
#include "endpoint.h"
#include "nic/headers.h"
#include "codecs/reduce.h"
#include "nic/turn_steps.h"
#include "words.h"

enum { STREAM, BLOCKS, HEADER_STREAM, NEAR, FAR, FLOWS };
enum {
    OWN_IP = 0x0a4d0001, PEER_IP = 0x0a4d0002, VNI = 7, TOS = 0x28, EXACT = 6,
    SLOT = 1 << 16, MESSAGES = 8, RX_FRAMES = 128 * MESSAGES, TX_FRAMES = 256, TX_BYTES = 1 << 20, MTU = 1500,
    SEALED_BYTES = 1 << 15, SEALED_FRAMES = 64, SEALED_LIMIT = 3000, COUNTER = 8, SEALED_OPTION = 0x80,
    CAPTURED_OPTION = 0x40, EMULATED_OPTION = 0x20, CAPTURE_BYTES = 1 << 14, REGION = 1 << 16, STEPS = 32,
    MAX_OPERATIONS = 200, OPERATIONS = 12
};

static sn_turn turn;
static sn_schedule schedule = {.ip = OWN_IP};
static sn_flow flows[FLOWS], peer; /* `peer` gives headers to what is sent to the first three */
static sn_port ports[FLOWS];
static int programs[FLOWS], wire, remote;
static uint8_t *memories[FLOWS], *region;
static sn_endpoint peer_key, wire_address;
static uint64_t peer_mac;
static uint16_t wire_port, remote_port;
static int64_t written, read_; /* by the programs of NEAR and FAR */
static double now;
static sn_capture capture = {.ip = OWN_IP, .interval_s = 1e-3};
static sn_capture_ring rings[2];
static uint64_t blocks_read[2];
static sn_session sessions[SN_MOST_SESSIONS];
static sn_secure_peer agreed = {
    .sessions = {sessions, sessions + 1},
    .hello_keys = {{.kind = SN_SECURE_HELLO}, {.kind = SN_IDENTITY_HELLO, .hint = 1}},
    .hello_key_count = 2,
};
static sn_secure_peer *agreed_with[1] = {&agreed};
static sn_secure_channel channel;
static double heard_at;
static sn_encryptor there; /* of the peer, whose frames the first session opens */
static uint64_t used[SN_MOST_SESSIONS]; /* counters in datagrams that left */
static sn_engine engine;
static sn_step_queue blocks, *queues[1] = {&blocks};
static sn_header_queue headers, *header_queues[1] = {&headers};
static sn_step steps[STEPS];
static sn_engine_op ops[STEPS];
static sn_header expected[STEPS];
static uint8_t header_bytes[STEPS][16];
static uint32_t step_count, header_count;

static int bound_socket(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static uint64_t mac_of(uint32_t ip)
{
    return UINT64_C(0x020000000000) | ip;
}

static void write_mac(uint8_t *out, uint32_t ip)
{
    for (int byte = 0; byte < 6; byte++)
        out[byte] = (uint8_t)(mac_of(ip) >> (40 - 8 * byte));
}

/* What is made once. */
static void prepare(void)
{
    wire = bound_socket(&wire_port);
    wire_address = loopback(wire_port);
    remote = bound_socket(&remote_port);
    region = exactly(REGION);
    for (int i = 0; i < FLOWS; i++)
        memories[i] = exactly(2 * CAPACITY);
    turn.rx = (sn_turn_receive){.size = MESSAGES * SLOT, .slot = SLOT, .messages = MESSAGES, .frames = RX_FRAMES};
    turn.rx.data = exactly(turn.rx.size);
    turn.rx.offsets = (uint32_t *)exactly(RX_FRAMES * sizeof(uint32_t));
    turn.rx.lengths = (uint32_t *)exactly(RX_FRAMES * sizeof(uint32_t));
    turn.rx.sources = (sn_source *)exactly(MESSAGES * sizeof(sn_source));
    turn.rx.found = (sn_received *)exactly(sizeof(sn_received));
    turn.batch.payloads = (sn_payload_ref *)exactly(RX_FRAMES * sizeof(sn_payload_ref));
    turn.batch.runs = (sn_run *)exactly(RX_FRAMES * sizeof(sn_run));
    turn.tx = (sn_turn_transmit){.size = TX_BYTES, .frames = TX_FRAMES};
    turn.tx.data = exactly(TX_BYTES);
    turn.tx.offsets = (uint32_t *)exactly(TX_FRAMES * sizeof(uint32_t));
    turn.tx.lengths = (uint32_t *)exactly(TX_FRAMES * sizeof(uint32_t));
    channel = (sn_secure_channel){.cipher = &CIPHER, .keys = &peer_key, .peers = agreed_with, .peer_count = 1,
                                  .heard_at = &heard_at,
                                  .size = SEALED_BYTES, .frames = SEALED_FRAMES};
    channel.out = exactly(SEALED_BYTES);
    channel.offsets = (uint32_t *)exactly(SEALED_FRAMES * sizeof(uint32_t));
    channel.lengths = (uint32_t *)exactly(SEALED_FRAMES * sizeof(uint32_t));
    channel.batch = (sn_datagrams){turn.rx.data, turn.rx.offsets, turn.rx.lengths, turn.rx.sources, turn.rx.found};
    turn.tx.plan = calloc(1, sizeof *turn.tx.plan);
    turn.tx.result = (sn_cut_result *)exactly(sizeof(sn_cut_result));
}

static void add_port(int index, uint32_t options)
{
    int ends[2];
    sn_flow *flow = &flows[index];
    sn_port *port = &ports[index];
    const bool is_near = index >= NEAR;
    open_connection(flow, is_near ? options & ~1u : options, memories[index], now);
    flow->connection.local_ip = OWN_IP;
    flow->connection.peer_ip = is_near ? OWN_IP : PEER_IP;
    flow->connection.local_port = 5000 + index;
    flow->connection.peer_port = is_near ? 5000 + NEAR + FAR - index : 6000 + index;
    if (index == FAR) {
        flow->send.iss = IRS;
        flow->receive.irs = ISS;
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    programs[index] = ends[1];
    *port = (sn_port){.fd = ends[0], .number = index, .input_open = true, .output_open = true};
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = ends[0]};
    CHECK(epoll_ctl(turn.epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    CHECK(sn_schedule_add(&schedule, flow) == 0 && sn_turn_add(&turn, port, flow) == 0);
    port->offloaded = index == BLOCKS || index == HEADER_STREAM;
    flow->nic_flow = (sn_nic_flow){.path_epoch = 1, .path_until = INFINITY, .is_loopback = is_near, .peer_codecs = 0xff,
                                   .codec = -1};
    flow->nic_flow.destination = (int64_t)mac_of(is_near ? OWN_IP : PEER_IP);
}

/* The control plane: what Python decides is left out. */

static uint32_t receive(void *owner, bool has_batch, double at)
{
    (void)owner, (void)at;
    CHECK(has_batch);
    peer_mac = mac_of(PEER_IP);
    return 0; /* of a stranger, or malformed */
}

static void agree(void)
{
    agreed.session_count = SN_MOST_SESSIONS;
    for (uint32_t i = 0; i < SN_MOST_SESSIONS; i++) {
        sn_session *session = &sessions[i];
        const uint64_t counter = session->encryptor.counter;
        *session = (sn_session){.rekey_at = now + 2, .rekey_counter = counter + SEALED_LIMIT / 2, .expires_at = now + 4};
        session->encryptor = (sn_encryptor){.counter = counter, .limit = counter + SEALED_LIMIT};
        session->encryptor.header[0] = session->decryptor.header[0] = SN_SECURE_FRAME;
        session->encryptor.header[7] = session->decryptor.header[7] = (uint8_t)i;
        session->settled = i == 1;
    }
    there = (sn_encryptor){.limit = UINT64_MAX};
    memcpy(there.header, sessions[0].decryptor.header, sizeof there.header);
}

static void examine(void *owner, double at)
{
    const sn_opening *o = &channel.opening;
    const sn_decrypted *found = &o->found;
    const uint32_t dropped = found->empty + found->wrong_key + found->plaintext + found->malformed + found->unknown +
                             found->replayed + found->forged;
    (void)owner, (void)at;
    CHECK(o->at_hello || o->shown || dropped);
    CHECK(o->source < turn.rx.found->sources && turn.rx.sources[o->source].peer == 0);
    if (o->shown)
        o->shown->settled = true;
    if (o->at_hello)
        CHECK(turn.rx.data[o->hello] == SN_SECURE_HELLO || turn.rx.data[o->hello] == SN_IDENTITY_HELLO);
    if (o->at_hello || found->unknown)
        agree();
    else if (found->malformed)
        agreed.session_count = 0;
}

static void run(void *owner, uint32_t index, double at)
{
    (void)owner, (void)at;
    CHECK(index < RX_FRAMES);
}

static void expire(void *owner, sn_flow *flow, double at)
{
    (void)owner, (void)at;
    sn_schedule_take(&schedule, flow);
}

static void notify(void *owner, sn_flow *flow, uint32_t what)
{
    (void)owner;
    CHECK(flow >= flows && flow < flows + FLOWS && what);
}

/* Looks up the codec of a flow's tag. */
static void prepare_flow(void *owner, sn_flow *flow, double at)
{
    (void)owner, (void)at;
    sn_nic_flow *path = &flow->nic_flow;
    path->tag = sn_send_buffer_tag_range(&flow->send_buffer, flow->send.snd_nxt)->tag;
    path->codec = path->tag == 0 ? -1 : path->is_loopback ? EXACT : 2;
    path->parameter = path->is_loopback ? 32 : 10;
}

static int64_t output(void *owner, sn_ready_ring *ring, int64_t space, double at)
{
    (void)owner, (void)at;
    CHECK(space > 0);
    sn_schedule_sent(&schedule, ring, ring->first, 0);
    return 0;
}

static void acknowledge(void *owner, sn_flow *flow, double at)
{
    (void)owner, (void)at;
    CHECK(flow >= flows && flow < flows + FLOWS);
    flow->connection.dup_acks_pending = 0;
}

static void send_rest(void *owner, uint32_t first, double at)
{
    (void)owner, (void)at;
    CHECK(first < turn.tx.result->frames);
}

static void loop(void *owner, uint32_t first)
{
    (void)owner;
    CHECK(first < turn.tx.result->frames);
}

static int64_t space(void *owner, double at)
{
    (void)owner, (void)at;
    return SN_LINK_BYTES;
}

/* Drops what the emulated link sends to a MAC address without a path. */
static void release(void *owner, double at)
{
    static uint8_t out[1 << 23];
    static uint32_t offsets[1 << 13], lengths[1 << 13];
    uint32_t count;
    (void)owner;
    while ((count = sn_emulated_burst(turn.emulated, at, false)) > 0) {
        CHECK(count <= sizeof offsets / sizeof *offsets);
        CHECK(turn.emulated->burst_bytes + (uint64_t)count * SN_HEADROOM <= sizeof out);
        sn_emulated_take(turn.emulated, count, out, offsets, lengths);
        for (uint32_t i = 0; i < count; i++)
            CHECK(offsets[i] >= SN_HEADROOM && offsets[i] + lengths[i] <= sizeof out);
    }
}

static sn_emulated_link *emulated_link(void)
{
    sn_emulated_link *link = sn_emulated_new();
    CHECK(link != NULL);
    link->byte_s = 8e-8;
    link->delay_s = 1e-3;
    link->coalesce_s = 1e-4;
    link->limit = 1 << 17;
    link->high = 7 << 14;
    link->low = 1 << 16;
    link->least_space = MTU;
    link->chance = (sn_emulated_chance){.jitter_s = 1e-3, .loss = 0.1, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.1,
                                        .last_due = -INFINITY, .generator = {.state_low = 1, .increment_low = 1}};
    return link;
}

static const sn_control control = {.receive = receive, .examine = examine, .run = run, .expire = expire, .notify = notify,
                                   .prepare = prepare_flow, .output = output, .acknowledge = acknowledge,
                                   .send = send_rest, .loop = loop, .release = release, .space = space};

/* Two captures, one of which nobody reads fast enough. */
static void open_captures(uint32_t options)
{
    capture.count = options & CAPTURED_OPTION ? 2 : 0;
    capture.flush_at = INFINITY;
    for (uint32_t i = 0; i < capture.count; i++) {
        rings[i] = (sn_capture_ring){.fd = -1, .interfaces = {(int32_t)i - 1, 2}, .snaplen = i ? 100 : 1 << 18};
        rings[i].limit = CAPTURE_BYTES << 4 * i;
        CHECK(sn_capture_ring_open(&rings[i]) == 0);
        capture.rings[i] = &rings[i];
        blocks_read[i] = 0;
    }
}

/* Whole blocks, and as many as were not dropped. */
static void read_captures(void)
{
    for (uint32_t i = 0; i < capture.count; i++) {
        static uint8_t data[(CAPTURE_BYTES << 4) + SN_CAPTURE_RESERVE];
        sn_capture_ring *ring = &rings[i];
        CHECK(ring->used <= ring->limit);
        const uint64_t size = sn_capture_ring_take(ring, data, sizeof data);
        for (uint64_t at = 0; at < size; blocks_read[i]++) {
            const uint32_t length = sn_load32(data + at + 4), kept = sn_load32(data + at + 20);
            CHECK(sn_load32(data + at) == 6 && length % 4 == 0 && length <= size - at && kept + 44 <= length);
            CHECK(kept <= ring->snaplen && sn_load32(data + at + length - 4) == length);
            at += length;
        }
        CHECK(blocks_read[i] == ring->received[0] + ring->received[1] - ring->dropped[0] - ring->dropped[1]);
    }
}

static void open_turn(uint32_t options)
{
    open_captures(options);
    peer_key = loopback(remote_port);
    peer_mac = mac_of(PEER_IP);
    turn = (sn_turn){.rx = turn.rx, .tx = turn.tx, .batch = turn.batch, .wire = wire, .control = control, .vni = VNI, .ip = OWN_IP, .mtu = MTU,
                     .offloads = UINT64_C(1) << (TOS >> 2), .peers = &peer_key, .peer_macs = &peer_mac, .peer_count = 1,
                     .schedule = &schedule, .link_full_at = -INFINITY, .timers_at = INFINITY,
                     .link_at = INFINITY, .requests_at = INFINITY, .path_epoch = 1, .epoll = epoll_create1(0), .capture = &capture};
    if (options & EMULATED_OPTION) {
        turn.emulated = emulated_link();
        turn.paths[0] = (sn_turn_path){mac_of(PEER_IP), 0, false};
        turn.path_count = 1;
    }
    if (options & SEALED_OPTION) {
        turn.channel = &channel;
        turn.vni = SN_ANY_DATAGRAM;
        verdict = 2;
        agree();
    }
    write_mac(turn.mac, OWN_IP);
    for (int i = 0; i < FLOWS; i++)
        add_port(i, options);
    open_connection(&peer, options, memories[STREAM], now);
    blocks = (sn_step_queue){.flow = &flows[BLOCKS], .engine = &engine};
    headers = (sn_header_queue){.flow = &flows[HEADER_STREAM], .steps = &blocks, .engine = &engine, .start = {0x9a, 1}};
    engine = (sn_engine){.receive_order = queues, .send_order = queues, .headers = header_queues, .queue_count = 1,
                         .header_count = 1};
    sn_flow_attach(&flows[BLOCKS], &blocks, NULL);
    sn_flow_attach(&flows[HEADER_STREAM], NULL, &headers);
    sn_turn_add_engine(&turn, &engine);
    step_count = header_count = 0;
    written = read_ = 0;
}

static void close_turn(void)
{
    if (turn.emulated)
        sn_emulated_free(turn.emulated);
    sn_turn_remove_engine(&turn, &engine);
    for (int i = 0; i < FLOWS; i++) {
        sn_turn_remove(&turn, &ports[i]);
        sn_schedule_remove(&schedule, &flows[i]);
        sn_receive_buffer_clear(&flows[i].receive_buffer);
        sn_reassembly_free(&flows[i].reassembly);
        close((int)ports[i].fd);
        if (programs[i] >= 0)
            close(programs[i]);
        sn_send_buffer_release(&flows[i].send_buffer, flows[i].send_buffer.end);
        free(flows[i].scoreboard.ranges);
        free(flows[i].send_buffer.runs);
        free(flows[i].send_buffer.tags);
    }
    free(peer.send_buffer.tags);
    for (uint32_t i = 0; i < capture.count; i++)
        sn_capture_ring_close(&rings[i]);
    close(turn.epoll);
    sn_turn_clear(&turn);
    sn_schedule_clear(&schedule);
}

static void send_frames(uint8_t *data, const uint32_t *offsets, const uint32_t *lengths, uint32_t count)
{
    static uint8_t out[1 << 17];
    uint32_t at[64], sizes[64];
    if (turn.channel == NULL) {
        sn_vxlan_send(remote, &wire_address, VNI, data, offsets, lengths, count, 0);
        return;
    }
    count = sn_encrypt(&CIPHER, &there, data, offsets, lengths, count, out, sizeof out, at, sizes);
    sn_udp_send(remote, &wire_address, out, at, sizes, count, 0);
}

/* A segment of the peer to one of the first three flows: near what is expected, or anywhere. */
static void peer_sends(input *in)
{
    static uint8_t frames[1 << 17];
    static uint32_t offsets[64], lengths[64];
    const uint32_t kind = take8(in);
    const sn_flow *to = &flows[take8(in) % NEAR];
    const int64_t shift = kind & 1 ? (int16_t)take16(in) : 0, back = kind & 2 ? (int16_t)take16(in) : 0;
    peer.connection = (sn_connection){.local_ip = PEER_IP, .peer_ip = OWN_IP, .local_port = to->connection.peer_port,
                                      .peer_port = to->connection.local_port};
    peer.connection.use_timestamps = to->connection.use_timestamps != ((kind & 4) != 0);
    sn_output out = {.flags = kind & 8 ? take8(in) : TCP_ACK_FLAG | TCP_PSH, .window = kind & 16 ? take16(in) : 512};
    out.seq = sn_number(to->receive.irs, to->receive.rcv_nxt + shift);
    out.ack = sn_number(to->send.iss, to->send.snd_nxt + back);
    out.ts_value = (uint32_t)to->timestamps.ts_recent + 1;
    out.ts_echo = sn_timestamp(to, now) - 1;
    out.tos = kind & 32 ? TOS : 0;
    uint8_t header[MAX_HEADER], own[6], other[6];
    write_mac(own, OWN_IP);
    write_mac(other, PEER_IP);
    size_t size;
    uint8_t *data = take_bytes(in, kind & 64 ? take16(in) % 20000 : take8(in), &size);
    sn_cut_plan plan = {.header_length = sn_flow_header(&peer, &out, own, other, 1, header), .codec = -1};
    plan.max_payload = MTU - 40 - (plan.header_length - 54);
    plan.max_frames = 16;
    if (kind & 32) {
        plan.codec = (int32_t)(take8(in) % 7);
        plan.parameter = (int32_t)take8(in) % 33;
        size -= size % 4;
    }
    sn_cut_result cut;
    if (sn_cut(&plan, header, data, size, frames, sizeof frames, offsets, lengths, &cut) == 0) {
        if (kind & 128)
            frames[offsets[0] + take16(in) % lengths[0]] ^= (uint8_t)(1 + take8(in));
        send_frames(frames, offsets, lengths, cut.frames);
    }
    free(data);
}

static void peer_sends_anything(input *in)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(wire_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t data[300] = {0x08, [6] = VNI};
    size_t size;
    uint8_t *some = take_bytes(in, take8(in), &size);
    if (turn.channel) {
        data[0] = size & 1 ? SN_SECURE_FRAME : SN_SECURE_HELLO;
        data[6] = 0;
    }
    memcpy(data + 8, some, size);
    sendto(remote, data, 8 + size, 0, (struct sockaddr *)&to, sizeof to);
    free(some);
}

static uint8_t byte_at(int64_t position)
{
    return (uint8_t)((position * 2654435761u) >> 7);
}

static void program_writes(int index, int64_t size)
{
    uint8_t data[1 << 16];
    for (int64_t i = 0; i < size; i++)
        data[i] = byte_at(written + i);
    const ssize_t count = programs[index] < 0 ? -1 : send(programs[index], data, (size_t)size, MSG_NOSIGNAL);
    if (count > 0 && index == NEAR)
        written += count;
}

static void program_reads(int index, int64_t size)
{
    uint8_t data[1 << 16];
    const ssize_t count = programs[index] < 0 ? -1 : recv(programs[index], data, (size_t)size, 0);
    for (ssize_t i = 0; index == FAR && i < count; i++)
        CHECK(data[i] == byte_at(read_ + i));
    if (count > 0 && index == FAR)
        read_ += count;
    CHECK(read_ <= written);
}

static void tag(int index, uint32_t how)
{
    sn_send_buffer *b = &flows[index].send_buffer;
    if (b->end >= sn_send_buffer_last_range(b)->start && (b->end - 1) % 4 == 0 && index != BLOCKS)
        CHECK(sn_send_buffer_tag(b, b->end, how & 1, how & 1 ? TOS : 0, how & 1, SN_LONGEST_BLOCK, how & 2) == 0);
}

static void post_step(input *in)
{
    if (step_count == STEPS)
        return;
    sn_step *step = &steps[step_count];
    sn_engine_op *op = &ops[step_count++];
    const uint32_t kind = take8(in), offset = take16(in) % (REGION / 2) & ~63u, size = 4 + (take16(in) % (REGION / 2) & ~3u);
    *op = (sn_engine_op){.number = step_count, .pending = 2, .steps = step, .step_count = 1};
    *step = (sn_step){.kind = (uint8_t)(SN_STEP_SEND + kind % 3), .op = op, .queue = &blocks, .size = size};
    step->memory = region + offset;
    step->owner = 1;
    step->is_last = true;
    step->block = SN_BLOCK;
    step->base = region + (kind & 4 ? offset : REGION / 2);
    step->operation = SN_SUM;
    step->type = SN_FLOAT32;
    step->item = 4;
    step->divisor = kind & 8 ? 3 : 0;
    step->rounds = step->kind == SN_STEP_COMBINE && kind & 16;
    step->codec = 2;
    step->parameter = 10;
    if (kind & 32) {
        step->pad_left = -size & (SN_BLOCK - 1);
        step->tag = 1;
        step->tos = TOS;
        step->words = true;
    }
    sn_step_post(step);
    if (kind & 64)
        blocks.matched = step_count;
    sn_engine_count_done(&engine, op);
    engine.is_active = true;
}

static void expect_header(input *in)
{
    if (header_count == STEPS || step_count == 0)
        return;
    sn_header *header = &expected[header_count];
    uint8_t *data = header_bytes[header_count++];
    const uint8_t whole[16] = {12, 0, 0, 0, 0x9a, 1, (uint8_t)step_count, (uint8_t)take8(in)};
    memcpy(data, whole, sizeof whole);
    ops[step_count - 1].pending++;
    *header = (sn_header){.op = &ops[step_count - 1], .data = data, .size = sizeof whole};
    sn_header_expect(&headers, header);
}

static void check_all(const sn_flow *before)
{
    for (int i = 0; i < FLOWS; i++) {
        check_connection(&flows[i], &before[i], now);
        int64_t kept = 0;
        const sn_receive_buffer *received = &flows[i].receive_buffer;
        for (const sn_chunk *chunk = received->first; chunk; chunk = chunk->next) {
            CHECK(chunk->start <= chunk->end && chunk->end <= chunk->size);
            kept += chunk->end - chunk->start;
        }
        CHECK(kept == received->size && kept == flows[i].receive.unread);
    }
}

static void take_turn(uint32_t events)
{
    static sn_flow before[FLOWS];
    memcpy(before, flows, sizeof before);
    for (int i = 0; i < FLOWS; i++) {
        if (events >> i & 1) {
            turn.fds[turn.event_count] = (int32_t)ports[i].fd;
            turn.masks[turn.event_count++] = EPOLLIN | EPOLLOUT;
        }
    }
    turn.wire_readable = true;
    for (int again = 0; again < 8; again++) {
        sn_turn_step(&turn, now);
        check_all(before);
        read_captures();
        turn.event_count = 0;
        for (sn_port *port; (port = sn_turn_take_noted(&turn)) != NULL; port->notes = 0)
            port->input_open = port->input_open && !(port->notes & SN_PORT_READ);
        while (sn_engine_take_completed(&engine)) {}
        if (headers.in_python && flows[HEADER_STREAM].receive_buffer.size) {
            flows[HEADER_STREAM].receive.unread = 0;
            sn_receive_buffer_clear(&flows[HEADER_STREAM].receive_buffer);
            headers.checked = 0;
        }
        if (!turn.has_looped)
            break;
    }
    uint8_t sink[2048];
    while (recv(remote, sink, sizeof sink, 0) > 0) {
        if (turn.channel) {
            CHECK(sink[0] == SN_SECURE_FRAME && sink[7] < SN_MOST_SESSIONS);
            const uint64_t counter = sn_load32be(sink + COUNTER + 4);
            CHECK(counter >= used[sink[7]] && counter < sessions[sink[7]].encryptor.limit);
            used[sink[7]] = counter + 1;
        }
    }
}

static void operate(input *in)
{
    const uint32_t what = take8(in), index = what >> 4 & 1 ? NEAR : STREAM;
    switch (what % OPERATIONS) {
    case 0: return peer_sends(in);
    case 1: return peer_sends_anything(in);
    case 2: now += take16(in) / 1e6; return take_turn(take8(in));
    case 3: now += take8(in) / 100.0; return take_turn(0xff);
    case 4: return program_writes((int)index, take16(in));
    case 5: return program_reads(index == NEAR ? FAR : STREAM, take16(in));
    case 6: return tag((int)(take8(in) % FLOWS), take8(in));
    case 7: return post_step(in);
    case 8: return expect_header(in);
    case 9: memset(region + take16(in) % REGION, (int)take8(in), 1); return;
    case 10: return program_writes(FAR, take16(in));
    default:
        if (take8(in) == 7 && programs[index] >= 0) {
            close(programs[index]);
            programs[index] = -1;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    if (region == NULL)
        prepare();
    now = 100;
    memset(region, 0, REGION);
    open_turn(take8(&in));
    for (int left = MAX_OPERATIONS; left && in.left; left--)
        operate(&in);
    take_turn(0xff);
    close_turn();
    return 0;
}
