/* PCG64, a small generator of random numbers whose state is seeded by the caller.

   M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number
   Generation", HMC-CS-2014-0905, 2014: the member XSL RR 128/64. It is numpy's `PCG64`: the same state gives the numbers
   of its Generator's `random` and `integers`. */
#ifndef SOFTNIC_PCG64_H
#define SOFTNIC_PCG64_H
/* C only */
#include <stdint.h>
/* all */

/* The upper and lower halves of 128-bit numbers. */
typedef struct {
    uint64_t state_high;
    uint64_t state_low;
    uint64_t increment_high; /* odd */
    uint64_t increment_low;
    uint32_t spare;     /* the upper half of a number of which only the lower half was used, ... */
    uint32_t has_spare; /* and whether there is one */
} sn_pcg64;

/* Returns a number from 0 to 1, 1 excluded, of 53 random bits. */
double sn_pcg64_fraction(sn_pcg64 *generator);

/* Returns a number below `bound`, which is at least 2, each with the same probability. */
uint32_t sn_pcg64_below(sn_pcg64 *generator, uint32_t bound);

#endif
