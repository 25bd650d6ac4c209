#include "collectives/engine.h"

#include <string.h>

#include "codecs/codecs.h"
#include "tcp/flow.h"
#include "codecs/reduce.h"

enum {
    LEAST_FORWARD = 32 << 10, /* a block is forwarded in parts of at least this size while the rest is being received */
    ROUND_AHEAD = 1 << 20,    /* bytes that are rounded at a time: a long block at once would hold up all other work */
    LEAST_ZEROCOPY = 4 << 10, /* smaller sends are not worth a run of their own */
    LARGEST_ITEM = 2 * sizeof(long double)
};

static const uint8_t ZEROS[SN_BLOCK];

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

uint32_t sn_look_at_streams(const sn_flow *const *flows, uint32_t control, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t index = 0; index < count; index++) {
        if (!flows[index]->connection.established)
            found |= SN_STREAM_ENDED;
        if (index < control && flows[index]->receive.unread)
            found |= SN_STREAM_UNREAD;
    }
    return found;
}

/* Operations and queues */

static void append(sn_step **first, sn_step **last, sn_step *step)
{
    step->next = NULL;
    if (*first)
        (*last)->next = step;
    else
        *first = step;
    *last = step;
}

void sn_step_post(sn_step *step)
{
    sn_step_queue *q = step->queue;
    if (step->kind == SN_STEP_SEND)
        append(&q->outgoing, &q->last_outgoing, step);
    else
        append(&q->incoming, &q->last_incoming, step);
}

void sn_step_queue_clear(sn_step_queue *q)
{
    q->incoming = q->outgoing = NULL;
    q->engine->first_done = NULL;
}

void sn_engine_count_done(sn_engine *engine, sn_engine_op *op)
{
    if (--op->pending)
        return;
    op->next_done = NULL;
    if (engine->first_done)
        engine->last_done->next_done = op;
    else
        engine->first_done = op;
    engine->last_done = op;
}

/* Zero-copy bytes that a stream was given so far. */
static int64_t zerocopy_bytes(const sn_step_queue *q)
{
    const sn_send_buffer *b = &q->flow->send_buffer;
    return b->completed_bytes + b->outstanding;
}

/* Whether no stream reads the memory of an operation, but for a short rest; with `copies`, that is copied. */
static bool is_sent(const sn_engine_op *op, bool copies)
{
    for (uint32_t i = 0; i < op->step_count; i++) {
        const sn_step *step = &op->steps[i];
        if (step->kind != SN_STEP_SEND || !step->is_last)
            continue;
        sn_send_buffer *b = &step->queue->flow->send_buffer;
        const int64_t missing = step->mark - b->completed_bytes;
        if (missing > op->most_copied || (copies && missing > 0 && sn_send_buffer_copy_out(b, missing)))
            return false;
    }
    return true;
}

bool sn_engine_has_completed(const sn_engine *engine)
{
    for (const sn_engine_op *op = engine->first_done; op; op = op->next_done)
        if (is_sent(op, false))
            return true;
    return false;
}

int64_t sn_engine_take_completed(sn_engine *engine)
{
    sn_engine_op *before = NULL;
    for (sn_engine_op *op = engine->first_done; op; before = op, op = op->next_done) {
        if (!is_sent(op, true))
            continue;
        if (before)
            before->next_done = op->next_done;
        else
            engine->first_done = op->next_done;
        if (engine->last_done == op)
            engine->last_done = before;
        return op->number;
    }
    return 0;
}

/* Receives */

int64_t sn_step_writable_end(const sn_step *step)
{
    int64_t end = step->before ? step->before->ready : step->size;
    for (uint32_t i = 0; i < step->reader_count; i++)
        end = smaller(end, step->readers[i]->done);
    return end;
}

/* How many of the first `end` bytes of a send have still to be copied before they may be overwritten, and those sent
   before on the same stream with them. */
static int64_t unsent_of(const sn_step *reader, int64_t end)
{
    return reader->first_position + smaller(end, reader->zerocopied) -
           reader->queue->flow->send_buffer.completed_bytes;
}

int sn_step_release(sn_step *step, int64_t end)
{
    for (uint32_t i = 0; i < step->reader_count; i++) {
        const int64_t missing = unsent_of(step->readers[i], end);
        if (missing > 0 && sn_send_buffer_copy_out(&step->readers[i]->queue->flow->send_buffer, missing))
            return -1;
    }
    if (end == step->size)
        step->reader_count = 0;
    return 0;
}

/* Takes bytes of a receive, whole elements. Returns how many. */
static int64_t take_part(sn_step_queue *q, sn_step *step, const uint8_t *data, int64_t size)
{
    int64_t count = smaller(size, sn_step_writable_end(step) - step->done);
    count -= step->kind == SN_STEP_COMBINE ? count % step->item : 0;
    if (count <= 0)
        return 0;
    if (sn_step_release(step, step->done + count)) {
        q->no_memory = true;
        return 0;
    }
    uint8_t *to = step->memory + step->done;
    if (step->kind == SN_STEP_COMBINE)
        sn_reduce(step->operation, step->type, data, step->base + step->done, (size_t)(count / step->item), to);
    else if (to != data)
        memcpy(to, data, (size_t)count);
    step->done += count;
    return count;
}

/* Divides and rounds the part of the result that contains all contributions. */
static void finish(const sn_step *step, int64_t end)
{
    uint8_t *part = step->memory + step->ready;
    const size_t size = (size_t)(end - step->ready);
    if (step->divisor)
        sn_divide(step->type, part, size / (size_t)step->item, step->divisor);
    if (step->rounds)
        sn_roundtrip(step->codec, step->parameter, part, size / sizeof(float), part);
}

static void settle(sn_step *step)
{
    const int64_t block = step->rounds ? 4 * sn_codec_block_words(step->codec) : SN_BLOCK;
    const int64_t end = step->done < step->size ? step->done - step->done % block : step->size;
    if (end > step->ready && step->kind == SN_STEP_COMBINE)
        finish(step, end);
    step->ready = end;
}

void sn_step_queue_settle(sn_step_queue *q)
{
    if (q->incoming)
        settle(q->incoming);
}

int64_t sn_step_queue_take(sn_step_queue *q, const uint8_t *data, int64_t size)
{
    int64_t used = 0;
    sn_step *step;
    while ((step = q->incoming) != NULL && step->op->number <= q->matched) {
        if (step->done < step->size) {
            used += take_part(q, step, data + used, size - used);
            if (step->done < step->size)
                break;
            settle(step);
        }
        const int64_t pad = smaller(step->pad_left, size - used);
        step->pad_left -= pad;
        used += pad;
        if (step->pad_left)
            break;
        q->incoming = step->next;
        sn_engine_count_done(q->engine, step->op);
    }
    return used;
}

/* Takes an element that lies in two chunks. Returns its size, or 0 if it is not complete. */
static int64_t take_split(sn_step_queue *q)
{
    const sn_step *step = q->incoming;
    uint8_t element[LARGEST_ITEM];
    int64_t size = 0;
    if (step == NULL || step->kind != SN_STEP_COMBINE || q->flow->receive_buffer.size < step->item)
        return 0;
    for (const sn_chunk *chunk = q->flow->receive_buffer.first; size < step->item; chunk = chunk->next) {
        const int64_t count = smaller(chunk->end - chunk->start, step->item - size);
        memcpy(element + size, chunk->data + chunk->start, (size_t)count);
        size += count;
    }
    return sn_step_queue_take(q, element, size);
}

int64_t sn_step_queue_receive(sn_step_queue *q)
{
    int64_t total = 0;
    while (q->flow->receive_buffer.first) {
        const sn_chunk *chunk = q->flow->receive_buffer.first;
        int64_t used = sn_step_queue_take(q, chunk->data + chunk->start, chunk->end - chunk->start);
        if (used == 0)
            used = take_split(q);
        if (used == 0)
            break;
        sn_receive_buffer_drop(&q->flow->receive_buffer, used);
        total += used;
    }
    sn_step_queue_settle(q);
    return total;
}

uint8_t *sn_step_queue_place(const sn_step_queue *q, int64_t size)
{
    const sn_step *step = q->incoming;
    if (step == NULL || step->kind != SN_STEP_COPY || step->op->number > q->matched)
        return NULL;
    if (step->done + size > sn_step_writable_end(step))
        return NULL;
    for (uint32_t i = 0; i < step->reader_count; i++)
        if (unsent_of(step->readers[i], step->done + size) > 0)
            return NULL;
    return step->memory + step->done;
}

/* Sends */

/* Rounds the next part of a block when the stream has taken all parts before it and has little left to transmit. */
static void round_next(sn_step *step, int64_t handed_over, const sn_flow *flow)
{
    const int64_t there = step->before ? step->before->ready : step->size;
    if (there < step->size && there - step->ready < LEAST_FORWARD)
        return; /* less is not handed over */
    if (handed_over != step->ready || step->ready >= there ||
        flow->send_buffer.end - flow->send.snd_nxt >= ROUND_AHEAD)
        return;
    int64_t end = smaller(there, step->ready + ROUND_AHEAD);
    if (end < step->size)
        end -= end % (4 * sn_codec_block_words(step->codec));
    uint8_t *part = step->memory + step->ready;
    sn_roundtrip(step->codec, step->parameter, part, (size_t)(end - step->ready) / sizeof(float), part);
    step->ready = end;
}

/* Copies bytes into the send buffer. Returns how many it took. */
static int64_t send_copied(sn_flow *flow, const uint8_t *data, int64_t size, uint32_t *found)
{
    sn_send_buffer *b = &flow->send_buffer;
    int64_t total = 0;
    while (total < size) {
        if (b->memory_size < 2 * b->capacity) {
            *found |= SN_QUEUE_MEMORY;
            break;
        }
        const int64_t count = smaller(sn_send_buffer_space(b), size - total);
        if (count == 0) {
            flow->connection.wants_space = true;
            break;
        }
        memcpy((uint8_t *)(uintptr_t)b->memory_address + (b->end - b->origin), data + total, (size_t)count);
        b->end += count;
        total += count;
        *found |= SN_QUEUE_WAKE;
    }
    return total;
}

/* Begins a block: the bytes from here on have its tag, in a range of their own if the codec's blocks are long. */
static int begin(sn_step *step)
{
    sn_send_buffer *b = &step->queue->flow->send_buffer;
    step->first_position = zerocopy_bytes(step->queue);
    if (sn_send_buffer_last_range(b)->tag == step->tag && step->block == SN_BLOCK)
        return 0;
    return sn_send_buffer_tag(b, b->end, step->tag, step->tos, step->words && b->floats, step->block, false);
}

/* Hands the stream at most `count` bytes. Returns whether it took any. */
static bool hand_over(sn_step *step, int64_t count, uint32_t *found)
{
    sn_flow *flow = step->queue->flow;
    sn_send_buffer *b = &flow->send_buffer;
    if (step->done == 0) {
        *found |= SN_QUEUE_WAKE;
        if (begin(step))
            step->queue->no_memory = true;
    }
    if (step->queue->no_memory || !flow->connection.writable || flow->send.fin_queued)
        return false;
    const uint8_t *data = step->memory + step->done;
    const int64_t whole = sn_send_buffer_zerocopy_len(b, count);
    if (whole < LEAST_ZEROCOPY) {
        const int64_t sent = send_copied(flow, data, smaller(count, whole ? whole : SN_BLOCK), found);
        step->done += sent;
        return sent > 0;
    }
    if (sn_send_buffer_send_zerocopy(b, data, whole, step->owner)) {
        step->queue->no_memory = true;
        return false;
    }
    *found |= SN_QUEUE_WAKE;
    step->done += whole;
    step->zerocopied = step->done;
    return true;
}

/* Hands over what is ready of a block. Returns whether that was the rest of it. */
static bool send_step(sn_step *step, uint32_t *found)
{
    sn_flow *flow = step->queue->flow;
    while (step->done < step->size) {
        int64_t ready = step->size;
        if (step->source) {
            if (step->source->kind == SN_STEP_ROUND)
                round_next(step->source, step->done, flow);
            ready = step->source->ready;
        }
        const int64_t count = ready - step->done;
        if ((ready < step->size && count < LEAST_FORWARD) || !hand_over(step, count, found))
            return false;
    }
    if (step->pad_left && flow->connection.writable && !flow->send.fin_queued)
        step->pad_left -= send_copied(flow, ZEROS, step->pad_left, found);
    return step->pad_left == 0;
}

uint32_t sn_step_queue_send(sn_step_queue *q)
{
    sn_send_buffer *b = &q->flow->send_buffer;
    uint32_t found = 0;
    sn_step *step;
    while ((step = q->outgoing) != NULL && send_step(step, &found)) {
        step->mark = zerocopy_bytes(q);
        if (step->block != SN_BLOCK && sn_send_buffer_tag(b, b->end, SN_PLAIN_TAG, 0, false, SN_BLOCK, false))
            q->no_memory = true;
        q->outgoing = step->next;
        sn_engine_count_done(q->engine, step->op);
    }
    return found;
}

bool sn_step_queue_is_unfinished(const sn_step_queue *q)
{
    if (q->outgoing || q->flow->send_buffer.outstanding)
        return true;
    int64_t missing = 0;
    for (const sn_step *step = q->incoming; step; step = step->next)
        missing += step->size - step->done + step->pad_left;
    return missing > q->flow->receive.unread;
}
