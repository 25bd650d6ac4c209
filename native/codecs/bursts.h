/* Bursts of eight words after Li et al. (MICRO 2018), Algorithms 2 and 3: a 16-bit tag word, two bits a lane, then
   the lanes' vectors of 0, 8, 16 or 32 bits. Codecs 1 and 2 share this layout and differ in what a vector means.

   Lane i of a burst starts at most 4 i bytes behind the tag word, so four-byte loads and stores for every lane,
   whatever its size, stay within SN_BURST_BOUND bytes of the burst's start. */
#ifndef SOFTNIC_BURSTS_H
#define SOFTNIC_BURSTS_H
#include <stddef.h>

#include "words.h"

enum { SN_BURST_WORDS = 8, SN_BURST_BOUND = 2 + 4 * SN_BURST_WORDS };

/* Size of a word's vector: all ones in one field, or in none for a word without a vector. */
typedef struct {
    uint32_t is_8;
    uint32_t is_16;
    uint32_t is_32;
} sn_kind;

static SN_INLINE uint32_t sn_size_of(sn_kind kind)
{
    return (kind.is_8 & 1) | (kind.is_16 & 2) | (kind.is_32 & 4);
}

/* Returns the kind of one lane, given a burst's tag word and the lane's 1 << 2 i. */
static SN_INLINE sn_kind sn_kind_of(uint32_t tags, uint32_t lane)
{
    const uint32_t tag = tags & 3 * lane;
    return (sn_kind){sn_mask(tag == lane), sn_mask(tag == 2 * lane), sn_mask(tag == 3 * lane)};
}

static const uint32_t sn_lanes[SN_BURST_WORDS] = {1, 1 << 2, 1 << 4, 1 << 6, 1 << 8, 1 << 10, 1 << 12, 1 << 14};

#define SN_SIZE(t, lane) (((t) >> 2 * (lane) & 3) + (((t) >> 2 * (lane) & 3) == 3))
#define SN_END_1(t) SN_SIZE(t, 0)
#define SN_END_2(t) (SN_END_1(t) + SN_SIZE(t, 1))
#define SN_END_3(t) (SN_END_2(t) + SN_SIZE(t, 2))
#define SN_ENDS(t) {SN_END_1(t), SN_END_2(t), SN_END_3(t), SN_END_3(t) + SN_SIZE(t, 3)}
#define SN_ENDS_4(t) SN_ENDS(t), SN_ENDS((t) + 1), SN_ENDS((t) + 2), SN_ENDS((t) + 3)
#define SN_ENDS_16(t) SN_ENDS_4(t), SN_ENDS_4((t) + 4), SN_ENDS_4((t) + 8), SN_ENDS_4((t) + 12)
#define SN_ENDS_64(t) SN_ENDS_16(t), SN_ENDS_16((t) + 16), SN_ENDS_16((t) + 32), SN_ENDS_16((t) + 48)

/* End of each of four lanes' vectors, from the start of the first, by their tags. */
static const uint8_t sn_ends[256][4] = {SN_ENDS_64(0), SN_ENDS_64(64), SN_ENDS_64(128), SN_ENDS_64(192)};

/* Returns the bytes of a burst's vectors. */
static inline size_t sn_vectors_size(uint32_t tags)
{
    return (size_t)sn_ends[tags & 0xff][3] + sn_ends[tags >> 8][3];
}

/* Returns the tag word of eight lanes: sizes packed to nibbles, even lanes in the low half, odd ones in the high half,
   size 4 turned into tag 3, halves merged. */
static inline uint32_t sn_tag_word(const uint32_t *size)
{
    uint64_t pairs[SN_BURST_WORDS / 2];
    memcpy(pairs, size, sizeof pairs);
    uint64_t tags = pairs[0] | pairs[1] << 4 | pairs[2] << 8 | pairs[3] << 12;
    tags -= tags >> 2 & 0x0000111100001111;
    return (uint32_t)(tags | tags >> 30) & 0xffff;
}

/* Writes a burst; may touch SN_BURST_BOUND bytes. Returns its end. */
static inline uint8_t *sn_pack_burst(uint8_t *out, uint32_t tags, const uint32_t *vector, const uint32_t *size)
{
    sn_store16(out, (uint16_t)tags);
    out += 2;
    for (unsigned lane = 0; lane < SN_BURST_WORDS; lane++) {
        sn_store32(out, vector[lane]);
        out += size[lane];
    }
    return out;
}

/* Reads eight lanes' vectors, with undefined upper bits; may touch 4 * SN_BURST_WORDS bytes. */
static inline void sn_unpack_burst(const uint8_t *in, uint32_t tags, uint32_t *vector)
{
    const uint8_t *const low = sn_ends[tags & 0xff], *const high = sn_ends[tags >> 8];
    const uint8_t *const middle = in + low[3];
    vector[0] = sn_load32(in);
    vector[4] = sn_load32(middle);
    for (unsigned lane = 0; lane < 3; lane++) {
        vector[lane + 1] = sn_load32(in + low[lane]);
        vector[lane + 5] = sn_load32(middle + high[lane]);
    }
}

/* Returns a pointer to `size` readable bytes: `in` itself, or `scratch` with the available ones and zeros. */
static inline const uint8_t *sn_readable(const uint8_t *in, size_t available, uint8_t *scratch, size_t size)
{
    if (available >= size)
        return in;
    memset(scratch, 0, size);
    memcpy(scratch, in, available);
    return scratch;
}

/* Called for each burst of an encoded body: `count` lanes (1..8) with these tags, their vectors at `in`, where
   `available` bytes (at least sn_vectors_size) are readable. */
typedef void sn_burst_visitor(void *context, const uint8_t *in, size_t available, uint32_t tags, unsigned count);

/* Checks and visits the burst whose tag word is at `in`. Returns its end, or NULL if it is truncated or has tags in
   lanes behind `count`. */
static SN_INLINE const uint8_t *sn_visit_burst(const uint8_t *in, const uint8_t *end, unsigned count,
                                               sn_burst_visitor *visit, void *context)
{
    if (end - in < 2)
        return NULL;
    const uint32_t tags = sn_load16(in);
    const size_t size = sn_vectors_size(tags), available = (size_t)(end - in) - 2;
    in += 2;
    if (size > available || (count < SN_BURST_WORDS && tags >> (2 * count)))
        return NULL;
    visit(context, in, available, tags, count);
    return in + size;
}

/* Counts vectors by tag. `context` is uint64_t[4]. */
static inline void sn_count_tags(void *context, const uint8_t *in, size_t available, uint32_t tags, unsigned count)
{
    uint64_t *counts = context;
    (void)in;
    (void)available;
    for (unsigned lane = 0; lane < count; lane++)
        counts[tags >> (2 * lane) & 3]++;
}

#endif
