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

static void move(sn_turn *t, sn_engine *engine)
{
    bool moved;
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
        if (found & SN_QUEUE_MEMORY || needs_python(q))
            t->reasons |= SN_TURN_ENGINE;
    }
    if (sn_engine_has_completed(engine))
        t->reasons |= SN_TURN_ENGINE;
}

void sn_turn_advance_engines(sn_turn *t)
{
    for (sn_engine *engine = t->engines; engine; engine = engine->next)
        if (engine->is_active)
            move(t, engine);
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
