/* A hostile peer's segments and an application's calls at the C of an established connection. Input: options (1 byte), then
   operations: 1 byte each, with their arguments.

   A step that is refused changes nothing. What is taken keeps the connection in order: positions and deadlines, the sums of
   the scoreboard, the tag ranges; and what is to be sent lies within the peer's window and the bytes written. What the C
   refuses is done here as far as a peer has a say in it. */
#include "connection.h"
#include "nic/headers.h"

enum {
    ACK_FLAG = 0x10,
    MOST = 1 << 19,      /* bytes written in all */
    OPERATIONS = 12, MAX_OPERATIONS = 400,
};

static sn_flow flow;
static uint8_t *written, *lent; /* memory of the bytes written, and of those sent from where they are */
static int64_t lent_at;
static double now, link_full_at;

static void check_flow(const sn_flow *before)
{
    check_connection(&flow, before, now);
}

/* What Python does with an acknowledgement that the C refuses (softnic/tcp/ack.py). */
static void acknowledge_slowly(int64_t una)
{
    sn_scoreboard *board = &flow.scoreboard;
    const int64_t all = board->delivered + board->pipe + board->lost;
    sn_ack ack;
    sn_flow_acknowledged(&flow, &ack, sn_flow_begin_ack(&flow, &ack, una, now), false, -1);
    CHECK(board->delivered + board->pipe + board->lost == all);
}

/* SACK blocks near what is in flight, as they lie in a batch. */
static void make_blocks(input *in, uint8_t *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < 2 * count; i++)
        sn_store32be(blocks + 4 * i, sn_number(flow.send.iss, flow.send.snd_una + (int16_t)take16(in)));
}

/* Bytes arrive behind a gap: each is the low byte of its position. */
static void keep(uint32_t seq, uint32_t length)
{
    sn_chunk *chunk = sn_reassembly_chunk(length);
    const int64_t position = sn_receive_position(&flow.receive, seq);
    for (uint32_t i = 0; i < length; i++)
        chunk->data[i] = (uint8_t)(position + i);
    chunk->end = length;
    CHECK(sn_flow_keep(&flow, seq, chunk) == 0);
    for (int64_t index = 0; index < flow.reassembly.count; index++) {
        const sn_waiting *waiting = sn_reassembly_at(&flow.reassembly, index);
        const uint8_t *data = waiting->chunk->data + waiting->chunk->start;
        const uint32_t last = waiting->chunk->end - waiting->chunk->start - 1;
        CHECK(data[0] == (uint8_t)waiting->start && data[last] == (uint8_t)(waiting->start + last));
    }
}

static void receive(input *in)
{
    const uint32_t kind = take8(in);
    const int64_t shift = kind & 1 ? (int32_t)take32(in) : 0, position = flow.receive.rcv_nxt + shift;
    int64_t ack = kind & 2 ? flow.send.snd_nxt : flow.send.snd_una;
    ack += kind & 4 ? (int32_t)take32(in) : kind & 8 ? (int16_t)take16(in) : 0;
    sn_run run = {.seq = sn_number(flow.receive.irs, position), .ack = sn_number(flow.send.iss, ack)};
    run.window = (uint16_t)(kind & 16 ? take16(in) : 512);
    run.flags = (uint8_t)(kind & 32 ? take8(in) : ACK_FLAG);
    const uint32_t length = kind & 64 ? take16(in) : 0, extra = kind & 128 ? take8(in) : 0;
    run.count = (uint16_t)(length / 1448 + 1);
    run.has_timestamps = flow.connection.use_timestamps != (extra & 1);
    run.sack_blocks = extra >> 4 & 3;
    uint8_t blocks[8 * 3];
    make_blocks(in, blocks, run.sack_blocks);
    run.ts_value = (uint32_t)flow.timestamps.ts_recent + (extra & 4 ? take32(in) : 0);
    run.ts_echo = extra & 8 ? take32(in) : sn_timestamp(&flow, now) - 1;
    const sn_flow before = flow;
    const sn_segment segment = sn_segment_of(&run, blocks, length);
    const uint32_t done = sn_flow_receives(&flow, &segment, now) ? sn_flow_receive(&flow, &segment, now) : 0;
    if (done) {
        const int64_t edge = before.send.snd_una - before.send.max_wnd;
        const bool is_ahead = length && position > before.receive.rcv_nxt;
        CHECK(done & SN_DONE && (!length || position >= before.receive.rcv_nxt));
        CHECK(run.ack - sn_number(flow.send.iss, edge) <= before.send.snd_nxt - edge);
        CHECK(!length || before.receive.rcv_adv > before.receive.rcv_nxt);
        CHECK(!!(done & SN_KEEP) == is_ahead && !!(done & SN_DELIVER) == (length && !is_ahead));
        if (is_ahead)
            keep(run.seq, length);
        sn_reassembly_deliver(&flow.reassembly, &flow.receive_buffer);
        const int64_t taken = flow.receive.rcv_nxt - before.receive.rcv_nxt;
        CHECK(is_ahead ? taken == 0 : taken >= length);
        CHECK(flow.receive.unread == before.receive.unread + taken);
        check_flow(&before);
        return;
    }
    CHECK(memcmp(&flow, &before, sizeof flow) == 0);
    if (flow.send.snd_una <= ack && ack <= flow.send.snd_nxt)
        acknowledge_slowly(ack);
    if (!shift && length && flow.receive.rcv_adv > flow.receive.rcv_nxt) {
        flow.receive.rcv_nxt += length;
        flow.receive.unread += length;
        sn_flow_fill_gap(&flow);
        sn_reassembly_deliver(&flow.reassembly, &flow.receive_buffer);
        flow.receive_tuning.started = now;
        flow.receive_tuning.round_ends = now + flow.receive_tuning.rtt_s;
        flow.connection.ack_pending = true;
    }
    check_flow(&before);
}

static void check_output(const sn_output *out, int64_t frames, uint32_t done)
{
    uint8_t header[MAX_HEADER];
    const uint32_t length = sn_flow_header(&flow, out, header, header, 7, header);
    const uint32_t options = 8 * out->sack_blocks + (out->sack_blocks ? flow.connection.use_timestamps ? 0 : 4 : 0);
    CHECK(length == (flow.connection.use_timestamps ? 66 : 54) + options && length <= SN_MOST_HEADER);
    CHECK(out->window <= 0xffff && (!out->sack_blocks || !(done & SN_DATA)));
    CHECK(out->ack == sn_number(flow.receive.irs, flow.receive.rcv_nxt));
    CHECK(out->frames >= 1 && out->frames <= frames);
    if (!(done & SN_DATA)) {
        CHECK(out->start == out->end && !flow.connection.ack_pending);
        return;
    }
    const sn_send_buffer *b = &flow.send_buffer;
    CHECK(out->start == sn_flow_next_sent(&flow) && out->end > out->start && out->end <= b->end);
    CHECK(out->start >= b->start && (out->start < flow.send.snd_nxt ? out->end <= flow.send.snd_nxt
                                                                    : out->end <= flow.send.snd_una + flow.send.snd_wnd));
    const sn_tag_range *first = sn_send_buffer_tag_range(b, out->start);
    CHECK(first == sn_send_buffer_tag_range(b, out->end - 1) && out->block_offset < SN_LONGEST_BLOCK);
    if (out->start >= b->zerocopy_end) {
        CHECK(out->data == written + (out->start - b->origin) && out->data + (out->end - out->start) <= written + 2 * CAPACITY);
        return;
    }
    const sn_send_run *run = sn_send_buffer_run_at(b, out->start);
    CHECK(out->end <= run->end && out->data == run->data + (out->start - run->start));
    CHECK(run->copy || (run->data >= lent && run->data + (run->end - run->start) <= lent + MOST));
}

/* What Python does where the C refuses: it sends a frame at most, and makes room for more. */
static void send_slowly(void)
{
    sn_send *snd = &flow.send;
    const int64_t start = snd->snd_nxt, edge = snd->snd_una + snd->snd_wnd, most = start + snd->mss;
    const int64_t end = sn_send_buffer_reach(&flow.send_buffer, start, edge < most ? edge : most, false);
    if (end <= start)
        return;
    CHECK(sn_send_buffer_cut_at(&flow.send_buffer, end) == 0);
    CHECK(sn_scoreboard_sent(&flow.scoreboard, start, end, end - start + 66, now) == 0);
    snd->snd_nxt = end;
    flow.connection.last_sent_at = now;
    if (flow.connection.rto_at == INFINITY) {
        flow.connection.unacked_since = now;
        sn_flow_arm_rto(&flow, now);
    }
}

static void send(input *in)
{
    const int64_t frames = 1 + take8(in) % 64;
    const sn_flow before = flow;
    sn_output out;
    const uint32_t done = sn_flow_output(&flow, frames, link_full_at, now, &out);
    if (!done) { /* it may have restarted an idle window and set the pacing rate */
        sn_flow other = flow;
        other.congestion = before.congestion;
        other.hystart = before.hystart;
        other.pacer = before.pacer;
        CHECK(memcmp(&other, &before, sizeof other) == 0);
        flow = before;
        send_slowly();
        check_flow(&before);
        return;
    }
    CHECK(!(done & SN_DATA) || !(done & SN_ACK));
    if (!(done & (SN_DATA | SN_ACK)))
        return;
    check_output(&out, frames, done);
    if (done & SN_ACK) {
        CHECK(!!(done & SN_AGAIN) == (before.connection.dup_acks_pending > 0));
        check_flow(&before);
        return;
    }
    int64_t taken = out.end - out.start, some = take8(in); /* the NIC may take less, in whole frames */
    if (sn_send_buffer_tag_range(&flow.send_buffer, out.start)->words) {
        const int64_t block = sn_send_buffer_tag_range(&flow.send_buffer, out.start)->block;
        some = block * (1 + some) - out.block_offset % block;
    } else {
        CHECK(taken <= out.frames * flow.send.mss);
        some = some ? some * flow.send.mss : taken;
    }
    taken = some < taken ? some : taken;
    const int64_t sent = 1 + taken / flow.send.mss;
    CHECK(sn_flow_sent(&flow, &out, taken, sent, taken + 66 * sent, now) & SN_DONE);
    CHECK(flow.send.snd_nxt == (out.start < before.send.snd_nxt ? before.send.snd_nxt : out.start + taken));
    CHECK(!flow.connection.ack_pending);
    check_flow(&before);
}

static void write(int64_t size)
{
    sn_send_buffer *b = &flow.send_buffer;
    const int64_t space = sn_send_buffer_space(b);
    CHECK(0 <= space && b->end - b->origin + space <= b->memory_size);
    size = size < space ? size : space;
    if (b->end + size < MOST)
        b->end += size;
}

/* Sends bytes from where they are (softnic/tcp/zerocopy.py). */
static void write_zerocopy(int64_t size)
{
    sn_send_buffer *b = &flow.send_buffer;
    const sn_tag_range *range = sn_send_buffer_last_range(b);
    if (range->words && ((b->end - range->origin) % range->block || size % range->block))
        return;
    if (!size || lent_at + size > MOST || b->end + size >= MOST || range->start > b->end)
        return;
    CHECK(sn_send_buffer_send_zerocopy(b, lent + lent_at, size, 0) == 0);
    lent_at += size;
}

static void tag(uint32_t number)
{
    sn_send_buffer *b = &flow.send_buffer;
    if (b->end >= sn_send_buffer_last_range(b)->start)
        CHECK(sn_send_buffer_tag(b, b->end + (number >> 4), number, 0x28, number & 1,
                                 number & 2 ? SN_LONGEST_BLOCK : SN_BLOCK, number & 4) == 0);
}

/* Fields that change the path, each on and off again. */
static void toggle(uint32_t which)
{
    sn_connection *c = &flow.connection;
    bool *fields[] = {&c->nodelay,     &c->blocked,    &c->orphaned,    &c->has_soft_error, &c->wants_space,
                      &c->ack_pending, &c->queued,     &flow.send_buffer.blocks,
                      &flow.recovery.must_send, &flow.reassembly.has_repeated};
    bool *field = fields[which % (sizeof fields / sizeof *fields)];
    *field = !*field;
}

/* Timers of losses expire. */
static void lose(input *in)
{
    sn_scoreboard *board = &flow.scoreboard;
    const uint32_t how = take8(in);
    if (how & 1)
        sn_scoreboard_on_sack_reneging(board);
    if (how & 2) {
        sn_recovery_begin_after_timeout(&flow, how & 4);
        sn_rack_timed_out(&flow.rack, board, now, 0);
        sn_retransmission_timeout_back_off(&flow.retransmission_timeout);
    } else if (board->count) {
        sn_flow_look_for_losses(&flow, now);
        if (board->lost && flow.recovery.is_open)
            sn_flow_begin_recovery(&flow);
    }
    if (how & 8)
        sn_rack_probed(&flow.rack, flow.send.snd_nxt, how & 16);
    check_scoreboard(&flow, now);
}

static void operate(input *in)
{
    switch (take8(in) % OPERATIONS) {
    case 0: return receive(in);
    case 1: return send(in);
    case 2: return write(take16(in));
    case 3: now += take16(in) / 1e5; return;
    case 4: now += take16(in) / 100.0; return;
    case 5: return write_zerocopy(take16(in));
    case 6: return tag(take8(in));
    case 7: return toggle(take8(in));
    case 8: return lose(in);
    case 9: link_full_at = now; return;
    case 10: flow.receive.unread -= flow.receive.unread * take8(in) / 255; return;
    default: flow.receive_tuning.round_ends = now; return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    if (!written) {
        written = exactly(2 * CAPACITY);
        lent = exactly(MOST);
    }
    now = 100;
    link_full_at = -INFINITY;
    lent_at = 0;
    open_connection(&flow, take8(&in), written, now);
    for (int left = MAX_OPERATIONS; left && in.left; left--)
        operate(&in);
    free(flow.scoreboard.ranges);
    free(flow.send_buffer.runs);
    free(flow.send_buffer.tags);
    sn_reassembly_free(&flow.reassembly);
    sn_receive_buffer_clear(&flow.receive_buffer);
    return 0;
}
