/* Collectives within a turn: what arrives goes to the steps that wait for it (engine.h), and what they send is handed to
   its stream, until a message, a completion or an exception needs Python. */
#include "turn.h"

#include "turn_steps.h"

int64_t sn_turn_take(sn_turn *t, const sn_port *port, const sn_run *run)
{
    const sn_payload_ref *payloads = t->rx.payloads + run->first;
    int64_t taken = 0;
    for (uint32_t i = 0; i < run->count; i++) {
        const int64_t used = sn_step_queue_take(port->steps, t->rx.data + payloads[i].offset, payloads[i].length);
        taken += used;
        if (used < payloads[i].length)
            break;
    }
    return taken;
}

/* Whether Python has to go on with a queue. */
static bool needs_python(const sn_step_queue *q)
{
    return q->no_memory || (sn_step_queue_python_step(q) && q->port->kept);
}

/* Matches the headers that have arrived. Returns whether Python has to. */
static bool match_headers(sn_turn *t, sn_engine *engine)
{
    bool left = false;
    for (uint32_t i = 0; i < engine->header_count; i++) {
        sn_header_queue *q = engine->headers[i];
        if (q->port->kept && !q->in_python)
            sn_turn_consume(t, q->port, sn_header_queue_receive(q));
        left = left || (q->in_python && q->port->kept);
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
            const int64_t used = q->incoming && q->port->kept ? sn_step_queue_receive(q) : 0;
            sn_turn_consume(t, q->port, used);
            moved = moved || used;
        }
    } while (moved);
    for (uint32_t i = 0; i < engine->queue_count; i++) {
        sn_step_queue *q = engine->send_order[i];
        const uint32_t found = q->outgoing ? sn_step_queue_send(q) : 0;
        if (found & SN_QUEUE_WAKE)
            sn_turn_wake_once(t, q->port);
        left = left || found & SN_QUEUE_MEMORY || needs_python(q);
    }
    return left;
}

/* Whether the turn has the ports of all streams: those that have ended are Python's. */
static bool has_all_ports(const sn_engine *engine)
{
    for (uint32_t i = 0; i < engine->header_count; i++)
        if (!engine->headers[i]->port->in_table)
            return false;
    for (uint32_t i = 0; i < engine->queue_count; i++)
        if (!engine->send_order[i]->port->in_table)
            return false;
    return true;
}

bool sn_turn_move_engine(sn_turn *t, sn_engine *engine)
{
    if (!has_all_ports(engine))
        return true;
    const bool left = match_headers(t, engine);
    return (engine->is_active && move_blocks(t, engine)) || left;
}

void sn_turn_advance_engines(sn_turn *t)
{
    for (sn_engine *engine = t->engines; engine; engine = engine->next) {
        if (sn_turn_move_engine(t, engine) || sn_engine_has_completed(engine))
            t->reasons |= SN_TURN_ENGINE;
    }
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
