/* The late frames of an emulated link: reordered ones, which later batches may overtake. A heap in order of time; frames
   of equal times keep their order. */
#ifndef SOFTNIC_EMULATED_LATE_H
#define SOFTNIC_EMULATED_LATE_H
#include "nic/emulated_link.h"

struct sn_emulated_late {
    double due;
    uint64_t number; /* counts late frames */
    uint64_t packet_id;
    uint32_t length;
    uint8_t bytes[]; /* SN_HEADROOM free ones, then the frame */
};

/* Adds a copy of a frame. Returns it, or NULL if there is no memory. */
sn_emulated_late *sn_emulated_add_late(sn_emulated_link *link, const uint8_t *data, uint32_t length, double due);

/* Removes the first frame. */
void sn_emulated_remove_late(sn_emulated_link *link);

void sn_emulated_clear_late(sn_emulated_link *link);

/* Gives memory back of which only a small part is in use. */
void sn_emulated_trim_late(sn_emulated_link *link);

/* Returns when the first frame is due; infinity: there is none. */
double sn_emulated_late_at(const sn_emulated_link *link);

#endif
