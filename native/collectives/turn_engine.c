/* Collectives within a turn: what arrives goes to the steps that wait for it (engine.h), and what they send is handed to
   its stream, until a message, a completion or an exception needs Python. */
#include "nic/turn.h"

#include "nic/turn_steps.h"

int64_t sn_turn_take(sn_turn *t, const sn_flow *flow, const sn_run *run)
{
    const sn_payload_ref *payloads = t->batch.payloads + run->first;
    int64_t taken = 0;
    for (uint32_t i = 0; i < run->count; i++) {
        const int64_t used = sn_step_queue_take(flow->steps, t->batch.data + payloads[i].offset, payloads[i].length);
        taken += used;
        if (used < payloads[i].length)
            break;
    }
    return taken;
}

/* Matches the headers that have arrived. Returns whether Python has to. */
static bool match_headers(sn_turn *t, sn_engine *engine)
{
    bool left = false;
    for (uint32_t i = 0; i < engine->header_count; i++) {
        sn_header_queue *q = engine->headers[i];
        if (q->flow->receive_buffer.size && !q->in_python)
            sn_turn_consume(t, q->flow, sn_header_queue_receive(q));
        left = left || (q->in_python && q->flow->receive_buffer.size);
    }
    return left;
}

/* Returns whether Python has to go on, for another reason than complete operations. */
static bool move_blocks(sn_turn *t, sn_engine *engine)
{
    bool moved, left = false;
    do { /* bytes of one stream may be what a step of another waits for */
        moved = false;
        for (uint32_t i = 0; i < engine->queue_count; i++) {
            sn_step_queue *q = engine->receive_order[i];
            const int64_t used = q->incoming && q->flow->receive_buffer.size ? sn_step_queue_receive(q) : 0;
            sn_turn_consume(t, q->flow, used);
            moved = moved || used;
        }
    } while (moved);
    for (uint32_t i = 0; i < engine->queue_count; i++) {
        sn_step_queue *q = engine->send_order[i];
        const uint32_t found = q->outgoing ? sn_step_queue_send(q) : 0;
        if (found & SN_QUEUE_WAKE)
            sn_schedule_wake(t->schedule, q->flow);
        left = left || found & SN_QUEUE_MEMORY || q->no_memory;
    }
    return left;
}

bool sn_turn_move_engine(sn_turn *t, sn_engine *engine)
{
    const bool left = match_headers(t, engine);
    return (engine->is_active && move_blocks(t, engine)) || left;
}

bool sn_turn_advance_engines(sn_turn *t, double now)
{
    bool left = false;
    for (sn_engine *engine = t->engines; engine; engine = engine->next) {
        left = sn_turn_move_engine(t, engine) || sn_engine_has_completed(engine) || left;
        if (engine->is_active)
            sn_engine_look_at_rate(engine, now);
    }
    return left;
}

void sn_turn_add_engine(sn_turn *t, sn_engine *engine)
{
    engine->next = t->engines;
    t->engines = engine;
}

void sn_turn_remove_engine(sn_turn *t, sn_engine *engine)
{
    for (sn_engine **at = &t->engines; *at; at = &(*at)->next) {
        if (*at == engine) {
            *at = engine->next;
            return;
        }
    }
}
