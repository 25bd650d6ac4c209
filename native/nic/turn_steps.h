/* What the files of a turn share beside what Python calls (turn.h). */
#ifndef SOFTNIC_TURN_STEPS_H
#define SOFTNIC_TURN_STEPS_H
#include "nic/turn.h"

/* Has Python continue with a port in this turn. */
static inline void sn_turn_note(sn_turn *turn, sn_port *port, uint32_t note)
{
    if (port->notes == 0) {
        port->next_noted = turn->first_noted;
        turn->first_noted = port;
    }
    port->notes |= note;
}

/* A MAC address as a number. */
static inline uint64_t sn_mac_number(const uint8_t *mac)
{
    uint64_t number = 0;
    for (int byte = 0; byte < 6; byte++)
        number = number << 8 | mac[byte];
    return number;
}

/* Whether a type of service selects an offload. */
static inline bool sn_turn_is_tagged(const sn_turn *turn, uint32_t tos)
{
    return turn->offloads >> (tos >> 2) & 1;
}

/* Cuts a segment into frames as `tx.plan` says, and counts it, for its flow too; `again`: it was sent before. Returns
   false if it cannot be cut. */
bool sn_turn_cut(sn_turn *turn, sn_nic_flow *flow, bool again, const uint8_t *header, const uint8_t *payload,
                 uint64_t length);

/* The known path to a MAC address, or NULL. */
const sn_turn_path *sn_turn_path_to(const sn_turn *turn, const uint8_t *destination);

/* Sends the frames in `tx`: to the kernel, through the emulated link, or through the link in Python, which also has
   those without a path (NULL). */
void sn_turn_send_frames(sn_turn *turn, const sn_nic_flow *path, double now);

/* Passes the frames whose time has come from the emulated link to the kernel. */
void sn_turn_release(sn_turn *turn, double now);

/* Bytes that the link takes now without loss. */
int64_t sn_turn_space(sn_turn *turn, double now);

/* Counts what the reader of a flow took, and asks for a window update if it is due. */
void sn_turn_consume(sn_turn *turn, sn_flow *flow, int64_t count);

/* Gives the payload of a run to the steps of a flow. Returns how many bytes they took. */
int64_t sn_turn_take(sn_turn *turn, const sn_flow *flow, const sn_run *run);

/* Passes run `index` of the batch up to a kernel. Returns false, and has changed nothing, if it is to be dropped. */
bool sn_turn_receive_tap(sn_turn *turn, uint32_t index, double now);

/* Sends what a kernel has sent, as far as the link has space. */
void sn_turn_send_tap(sn_turn *turn, double now);

/* Lets collectives go on. Returns whether Python has to. */
bool sn_turn_advance_engines(sn_turn *turn, double now);

/* Receives and processes the frames of the latest cut, up to the first run that Python has to process. */
void sn_turn_loop_back(sn_turn *turn, double now);

/* Receives and processes frames to this node itself that the control plane has. */
void sn_turn_take_looped(sn_turn *turn, double now);

/* Receives and processes batches until nothing waits. */
void sn_turn_take_batches(sn_turn *turn, double now);

/* The time, in seconds of CLOCK_MONOTONIC. */
double sn_turn_clock(void);

#endif
