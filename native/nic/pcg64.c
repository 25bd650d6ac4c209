#include "nic/pcg64.h"

static const uint64_t MULTIPLIER_HIGH = 2549297995355413924u, MULTIPLIER_LOW = 4865540595714422341u;

static unsigned __int128 joined(uint64_t high, uint64_t low)
{
    return (unsigned __int128)high << 64 | low;
}

static uint64_t next(sn_pcg64 *g)
{
    const unsigned __int128 state = joined(g->state_high, g->state_low) * joined(MULTIPLIER_HIGH, MULTIPLIER_LOW)
        + joined(g->increment_high, g->increment_low);
    g->state_high = (uint64_t)(state >> 64);
    g->state_low = (uint64_t)state;
    const uint64_t folded = g->state_high ^ g->state_low;
    const unsigned turns = (unsigned)(g->state_high >> 58);
    return folded >> turns | folded << (-turns & 63);
}

static uint32_t next_half(sn_pcg64 *g)
{
    if (g->has_spare) {
        g->has_spare = 0;
        return g->spare;
    }
    const uint64_t number = next(g);
    g->spare = (uint32_t)(number >> 32);
    g->has_spare = 1;
    return (uint32_t)number;
}

double sn_pcg64_fraction(sn_pcg64 *generator)
{
    return (double)(next(generator) >> 11) * 0x1p-53;
}

/* D. Lemire, "Fast Random Integer Generation in an Interval", ACM TOMACS 29(1), 2019. */
uint32_t sn_pcg64_below(sn_pcg64 *generator, uint32_t bound)
{
    uint64_t product = (uint64_t)next_half(generator) * bound;
    if ((uint32_t)product < bound)
        for (const uint32_t least = -bound % bound; (uint32_t)product < least;)
            product = (uint64_t)next_half(generator) * bound;
    return (uint32_t)(product >> 32);
}
