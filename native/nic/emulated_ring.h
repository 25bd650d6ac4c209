/* The memory of an emulated link, for native/nic/emulated_link.c. */
#ifndef SOFTNIC_EMULATED_RING_H
#define SOFTNIC_EMULATED_RING_H
#include <stdbool.h>

#include "nic/emulated_link.h"

/* Makes room for `copies` of frames. Returns false if there is no memory. */
bool sn_emulated_reserve(sn_emulated_link *link, const uint32_t *lengths, uint32_t count, uint32_t copies);

/* Gives memory back of which only a small part was in use since the last call. */
void sn_emulated_trim(sn_emulated_link *link, double now);

/* Sends frames, each behind SN_HEADROOM bytes that it may overwrite. Returns as sn_vxlan_send; 0: none was sent. */
typedef int (*sn_frames_sender)(const void *context, uint8_t *data, const uint32_t *offsets, const uint32_t *lengths,
                                uint32_t count);

/* sn_emulated_push by way of `send`. */
int64_t sn_emulated_push_with(sn_emulated_link *link, uint32_t count, sn_frames_sender send, const void *context);

static inline sn_emulated_frame *sn_emulated_frame_at(const sn_emulated_link *link, uint64_t number)
{
    return &link->frames[number & (link->capacity - 1)];
}

static inline double *sn_emulated_period_end(const sn_emulated_link *link, uint64_t period)
{
    return &link->period_ends[period & (link->capacity - 1)];
}

static inline bool sn_emulated_is_empty(const sn_emulated_link *link)
{
    return link->first == link->end;
}

#endif
