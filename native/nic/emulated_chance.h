/* What happens by chance to frames on an emulated link (softnic/link/emulation.py): jitter, loss, duplication, reordering
   and corruption. */
#ifndef SOFTNIC_EMULATED_CHANCE_H
#define SOFTNIC_EMULATED_CHANCE_H
/* C only */
#include <stdint.h>

#include "nic/pcg64.h"
/* all */

/* Frame times that a reordered frame is late by, at most. */
enum { SN_MAX_LATE_FRAMES = 8 };

typedef struct {
    /* Set by the owner, before the first frame. Probabilities are per frame. */
    double jitter_s; /* half the width of the uniform distribution of the delay */
    double loss;
    double duplicate;
    double reorder;
    double corrupt;
    double unrated_frame_s; /* frame time of a link without a rate, for reordering */
    sn_pcg64 generator;

    double last_due; /* latest time of the batches before */
    uint64_t lost;   /* frames */
    uint64_t duplicated;
    uint64_t reordered;
    uint64_t corrupted;
} sn_emulated_chance;

/* A frame that arrives. */
typedef struct {
    double due;
    uint32_t index;  /* among those that were sent */
    uint32_t bit;    /* of a corrupted frame that is not empty: to be flipped */
    uint8_t corrupt; /* the frame is to travel as a batch of its own: the bit may be one of its destination */
    uint8_t chosen;  /* chosen by the latest draw, ... */
    uint32_t place;  /* and place in the order before reordering: for emulated_chance.c */
} sn_emulated_arrival;

/* Returns whether there is anything to decide. */
int sn_emulated_is_random(const sn_emulated_chance *chance);

/* Returns the delay of the next batch. */
double sn_emulated_draw_delay(sn_emulated_chance *chance, double delay_s);

/* Decides on the frames of a batch, and counts. `list` has room for two of each if they may be duplicated. `due` and
   `index` of the first `count` are set, in order. Returns how many arrive. In order of time, the first `on_time` of them
   come no later than the batch would have; those behind may be overtaken by the next batch. */
uint32_t sn_emulated_decide(sn_emulated_chance *chance, double byte_s, const uint32_t *lengths,
                            sn_emulated_arrival *list, uint32_t count, uint32_t *on_time);

#endif
