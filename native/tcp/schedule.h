/* The flows of one node: by their addresses, whose turn it is to send, and whose timers are due.

   Turns are counted in wire bytes (deficit round robin: Shreedhar and Varghese, 1995), so that each flow gets the same
   share of the link although a super-segment of one may become a hundred times as many frames as another's. A flow is in
   a ring while it is `queued`, and in the heap of timers from `scheduled_at`, which is never later than its earliest
   deadline. */
#ifndef SOFTNIC_SCHEDULE_H
#define SOFTNIC_SCHEDULE_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "tcp/flow.h"
/* all */

enum {
    SN_TURN_BYTES = 128 << 10,      /* wire bytes that a flow sends in one turn while others wait to send */
    SN_LEAST_TURN_BYTES = 16 << 10, /* a smaller rest is not worth a segment: it is added to the next turn */
    SN_LOOPBACK_BYTES = 1 << 20     /* of frames that one flow to the node itself sends in one turn */
};

/* Flows that may have something to send, in the order of their turns. */
typedef struct {
    sn_flow *first;
    sn_flow *last;
} sn_ready_ring;

typedef struct {
    uint32_t ip;            /* of the node */
    sn_ready_ring ready;
    sn_ready_ring loopback; /* flows to the node itself, which wait for no link */
    sn_flow **timers;       /* a heap by time, then by the order of setting */
    uint32_t timer_count;
    uint32_t timers_size;
    uint64_t timer_order;
    sn_flow **table; /* by addresses */
    uint32_t table_size; /* a power of two, or 0 */
    uint32_t flows;
} sn_schedule;

/* Adds a flow, which may be found, woken and scheduled from now on. Returns -1 if there is no memory. */
int sn_schedule_add(sn_schedule *schedule, sn_flow *flow);

/* The flow with these addresses, or NULL. */
sn_flow *sn_schedule_find(const sn_schedule *schedule, uint32_t peer_ip, uint32_t peer_port, uint32_t local_port);

/* Removes a flow that has ended. */
void sn_schedule_remove(sn_schedule *schedule, sn_flow *flow);

/* Queues a flow that may have something to send, unless it is. */
void sn_schedule_wake(sn_schedule *schedule, sn_flow *flow);

/* Number of the flows in a ring. */
uint32_t sn_ready_count(const sn_ready_ring *ring);

/* Frames that the first flow of a ring may send now, if the link has space for `space` bytes; 1 at least. */
int64_t sn_schedule_frames(const sn_ready_ring *ring, int64_t space);

/* Accounts for what the first flow of a ring, `flow`, has sent: `wire_bytes`. Its turn may end with it. */
void sn_schedule_sent(sn_schedule *schedule, sn_ready_ring *ring, sn_flow *flow, int64_t wire_bytes);

/* Ensures that the timers of a flow are checked at its earliest deadline. */
void sn_schedule_timers(sn_schedule *schedule, sn_flow *flow);

/* Runs timers that are due, as far as they need only numbers: the next burst of a paced flow, and a delayed
   acknowledgement. Returns the first flow with another one that is due, which stays where it is; NULL: none is left. */
sn_flow *sn_schedule_run(sn_schedule *schedule, double now);

/* Takes the first flow of the timers: the caller runs its timers, and schedules them again. */
void sn_schedule_take(sn_schedule *schedule, sn_flow *flow);

/* When timers are to be run next; infinity: not before one is set. */
double sn_schedule_next(const sn_schedule *schedule);

/* Frees what the schedule has allocated. */
void sn_schedule_clear(sn_schedule *schedule);

#endif
