/* Bursts of eight words after Li et al. (MICRO 2018), Algorithms 2 and 3: a 16-bit tag word, two bits a lane, then
   the lanes' vectors of 0, 8, 16 or 32 bits. Codecs 1 and 2 share this layout and differ in what a vector means.

   Lane i of a burst starts at most 4 i bytes behind the tag word, so four-byte loads and stores for every lane,
   whatever its size, stay within SN_BURST_BOUND bytes of the burst's start. */
#ifndef SOFTNIC_BURSTS_H
#define SOFTNIC_BURSTS_H
#include <stddef.h>

#include "words.h"

enum { SN_BURST_WORDS = 8, SN_BURST_BOUND = 2 + 4 * SN_BURST_WORDS };

/* Some words split into vectors: what goes over the wire, in the low bits, and its bytes (0, 1, 2 or 4). */
typedef struct {
    uint32_t vector[2 * SN_BURST_WORDS];
    uint32_t size[2 * SN_BURST_WORDS];
} sn_vectors;

#define SN_TAG_SIZE(tag) ((tag) + ((tag) == 3))
#define SN_TAGS_SIZE(tags) \
    (SN_TAG_SIZE((tags) & 3) + SN_TAG_SIZE((tags) >> 2 & 3) + SN_TAG_SIZE((tags) >> 4 & 3) + SN_TAG_SIZE((tags) >> 6))
#define SN_TAGS_4(t) SN_TAGS_SIZE(t), SN_TAGS_SIZE((t) + 1), SN_TAGS_SIZE((t) + 2), SN_TAGS_SIZE((t) + 3)
#define SN_TAGS_16(t) SN_TAGS_4(t), SN_TAGS_4((t) + 4), SN_TAGS_4((t) + 8), SN_TAGS_4((t) + 12)
#define SN_TAGS_64(t) SN_TAGS_16(t), SN_TAGS_16((t) + 16), SN_TAGS_16((t) + 32), SN_TAGS_16((t) + 48)

/* Bytes of four lanes' vectors, by their tags. */
static const uint8_t sn_four_lanes_size[256] = {SN_TAGS_64(0), SN_TAGS_64(64), SN_TAGS_64(128), SN_TAGS_64(192)};

/* Bytes of a burst's vectors. */
static inline size_t sn_vectors_size(uint32_t tags)
{
    return (size_t)sn_four_lanes_size[tags & 0xff] + sn_four_lanes_size[tags >> 8];
}

/* The tag word of eight lanes. */
static inline uint32_t sn_tag_word(const uint32_t *size)
{
    uint32_t tags = 0;
    for (unsigned lane = 0; lane < SN_BURST_WORDS; lane++)
        tags |= (size[lane] - (size[lane] >> 2)) << (2 * lane);
    return tags;
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

/* Reads eight lanes' vectors; may touch 4 * SN_BURST_WORDS bytes. */
static inline void sn_unpack_burst(const uint8_t *in, uint32_t tags, uint32_t *vector, uint32_t *size)
{
    static const uint32_t sizes[4] = {0, 1, 2, 4}, masks[4] = {0, 0xff, 0xffff, 0xffffffff};
    for (unsigned lane = 0; lane < SN_BURST_WORDS; lane++) {
        const uint32_t tag = tags >> (2 * lane) & 3;
        vector[lane] = sn_load32(in) & masks[tag];
        size[lane] = sizes[tag];
        in += sizes[tag];
    }
}

/* A place from which `size` bytes may be read: `in` itself, or `scratch` with what there is and zeros behind. */
static inline const uint8_t *sn_readable(const uint8_t *in, size_t available, uint8_t *scratch, size_t size)
{
    if (available >= size)
        return in;
    memset(scratch, 0, size);
    memcpy(scratch, in, available);
    return scratch;
}

/* What a walk over an encoded body does with each burst: `count` lanes (1..8) with these tags, their vectors at
   `in`, of which `available` bytes (at least sn_vectors_size) may be read. */
typedef void sn_burst_visitor(void *context, const uint8_t *in, size_t available, uint32_t tags, unsigned count);

/* Checks and visits one burst whose tag word is at `in`. Returns its end, or NULL if it is cut short or has
   something in lanes behind `count`. */
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

/* Adds lanes to a count of vectors by tag. `context` is uint64_t[4]. */
static inline void sn_count_tags(void *context, const uint8_t *in, size_t available, uint32_t tags, unsigned count)
{
    uint64_t *counts = context;
    (void)in;
    (void)available;
    for (unsigned lane = 0; lane < count; lane++)
        counts[tags >> (2 * lane) & 3]++;
}

#endif
