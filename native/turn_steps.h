/* What the files of a turn share beside what Python calls (turn.h). */
#ifndef SOFTNIC_TURN_STEPS_H
#define SOFTNIC_TURN_STEPS_H
#include "turn.h"

/* The port of a flow, or NULL. */
sn_port *sn_turn_find(const sn_turn *turn, uint32_t peer_ip, uint32_t peer_port, uint32_t local_port);

/* Has Python continue with a port after this call. */
void sn_turn_note(sn_turn *turn, sn_port *port, uint32_t note);

/* Whether a type of service selects an offload. */
static inline bool sn_turn_is_tagged(const sn_turn *turn, uint32_t tos)
{
    return turn->offloads >> (tos >> 2) & 1;
}

static inline void sn_turn_wake_once(sn_turn *turn, sn_port *port)
{
    if (!port->flow->connection.queued)
        sn_turn_wake(turn, port);
}

/* Sends the frames of the latest cut: to the kernel or through the emulated link. */
void sn_turn_send_frames(sn_turn *turn, const sn_port *port, double now);

/* Passes the frames whose time has come from the emulated link to the kernel. */
void sn_turn_release(sn_turn *turn, double now);

/* Makes room for the timer of one port more. Returns -1 if there is no memory. */
int sn_turn_reserve_timer(sn_turn *turn);

/* Removes the entry of a port from the heap of timers. Returns whether it had one that counts. */
bool sn_turn_unschedule(sn_turn *turn, sn_port *port);

/* Counts what the reader of a port took, and asks for a window update if it is due. */
void sn_turn_consume(sn_turn *turn, sn_port *port, int64_t count);

/* Gives the payload of a run to the steps of a port. Returns how many bytes they took. */
int64_t sn_turn_take(sn_turn *turn, const sn_port *port, const sn_run *run);

/* Lets collectives go on. */
void sn_turn_advance_engines(sn_turn *turn);

/* Passes on what an application did not take earlier. */
void sn_turn_push(sn_turn *turn, sn_port *port);

/* Receives and processes the frames of the latest cut, up to the first run that is Python's. */
void sn_turn_loop_back(sn_turn *turn, double now);

/* Receives and processes batches until the wire is empty, or one is Python's. */
void sn_turn_receive_all(sn_turn *turn, double now);

/* The time, in seconds of CLOCK_MONOTONIC. */
double sn_turn_clock(void);

#endif
