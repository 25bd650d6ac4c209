/* Codec 7: OCP Microscaling Formats (MX) v1.0. Blocks of 32 words share a scale, a power of two, and each word is a float
   of 8, 6 or 4 bits times that. The largest magnitude of a block, less than twice the largest power of two of the
   element type times the scale, stays in its binade when it is rounded, because elements saturate: a second encoding
   finds the same scale and the same elements. The size of a body depends on its number of words alone. */
#ifndef SOFTNIC_MX_H
#define SOFTNIC_MX_H
#include <stddef.h>
#include <stdint.h>

#include "words.h"

enum { SN_MX_E4M3 = 1, SN_MX_E5M2 = 2, SN_MX_E2M3 = 3, SN_MX_E2M1 = 4 };

enum {
    SN_MX_BLOCK_WORDS = 32,
    SN_MX_BLOCK_BYTES = 4 * SN_MX_BLOCK_WORDS,
    SN_MX_LONGEST = 1 + SN_MX_BLOCK_WORDS,
    SN_MX_NAN = 0xff, /* the scale of a block that has an infinity or a NaN */
    /* Exponent fields of the largest word of a block at which floats quantise any element type's elements: no constant
       overflows, and no denormal is more than half of the least element. */
    SN_MX_LEAST_USUAL = 40,
    SN_MX_MOST_USUAL = 230,
    /* Scales at which a product of binary32 gives any element's word, neither a denormal nor infinite. */
    SN_MX_LEAST_SCALE = 32,
    SN_MX_MOST_SCALE = 239
};

/* An element type. A magnitude is the bits of an element without its sign. */
typedef struct {
    unsigned bits;
    unsigned mantissa; /* bits of it */
    int bias;
    uint32_t most; /* the largest finite magnitude */
    int has_infinity; /* whether the magnitude behind it is infinite; else those above it are NaNs */
} sn_mx_format;

static SN_INLINE sn_mx_format sn_mx_format_of(int parameter)
{
    return parameter == SN_MX_E4M3   ? (sn_mx_format){8, 3, 7, 0x7e, 0}
           : parameter == SN_MX_E5M2 ? (sn_mx_format){8, 2, 15, 0x7b, 1}
           : parameter == SN_MX_E2M3 ? (sn_mx_format){6, 3, 1, 0x1f, 0}
                                     : (sn_mx_format){4, 1, 1, 0x07, 0};
}

/* Returns the exponent of the largest finite element. */
static SN_INLINE int sn_mx_greatest_exponent(sn_mx_format f)
{
    return (int)(f.most >> f.mantissa) - f.bias;
}

/* Returns how far the exponent of the smallest normal element is below that. */
static SN_INLINE int sn_mx_exponents(sn_mx_format f)
{
    return (int)(f.most >> f.mantissa) - 1;
}

static SN_INLINE size_t sn_mx_block_size(sn_mx_format f, size_t count)
{
    return 1 + (count * f.bits + 7) / 8;
}

/* Encode and decode a block of `count` (1..32) words. The first returns the end; the second 0, or -1 if bits behind the
   last element are set. The words are read once: an application may change them meanwhile. */
uint8_t *sn_mx_put(uint8_t *out, int parameter, const uint8_t *words, unsigned count);
int sn_mx_take(const uint8_t *in, int parameter, uint8_t *words, unsigned count);

/* Computes the words of an encoded block. `out` may be `words`. */
static inline void sn_mx_round(int parameter, const uint8_t *words, uint8_t *out, unsigned count)
{
    uint8_t block[SN_MX_LONGEST];
    sn_mx_put(block, parameter, words, count);
    sn_mx_take(block, parameter, out, count);
}

/* Elements are decoded as binary16: with as many fraction bits of it as they have, or fewer, and its range of exponents. */
enum { SN_MX_HALF_SIGN = 0x8000, SN_MX_HALF_FRACTION = 10, SN_MX_HALF_BIAS = 15 };

/* Returns which bits of such a binary16 are the element's magnitude. */
static SN_INLINE uint32_t sn_mx_half_magnitude(sn_mx_format f)
{
    return ((1u << (f.bits - 1)) - 1) << (SN_MX_HALF_FRACTION - f.mantissa);
}

/* Returns what such a binary16 is multiplied by, for a scale in the range above; for others, a normal number. */
static SN_INLINE float sn_mx_factor(sn_mx_format f, uint32_t scale)
{
    return sn_float_of((scale ? scale + SN_MX_HALF_BIAS - (uint32_t)f.bias : 1) << 23);
}

/* Returns whether floats quantise a block with this largest magnitude. */
static inline int sn_mx_is_usual(uint32_t greatest)
{
    return (greatest >> 23) - SN_MX_LEAST_USUAL <= SN_MX_MOST_USUAL - SN_MX_LEAST_USUAL || greatest == 0;
}

/* Returns the scale of a usual block. */
static SN_INLINE uint8_t sn_mx_scale(sn_mx_format f, uint32_t greatest)
{
    return (uint8_t)(greatest ? (greatest >> 23) - (uint32_t)sn_mx_greatest_exponent(f) : 0);
}

/* Returns whether the scale is one at which products give finite elements' words. */
static inline int sn_mx_is_product_scale(uint32_t scale)
{
    return scale - SN_MX_LEAST_SCALE <= SN_MX_MOST_SCALE - SN_MX_LEAST_SCALE;
}

/* Whole blocks, of which no byte but theirs may be touched. Any bytes are one. */
typedef void sn_mx_block_encoder(uint8_t *out, int parameter, const uint8_t *words);
typedef void sn_mx_block_decoder(const uint8_t *in, int parameter, uint8_t *words);
typedef void sn_mx_block_rounder(int parameter, const uint8_t *words, uint8_t *out);

/* sn_encode (codecs.h). Begins at a block's start, or `count` is at most what is left of one. */
static SN_INLINE size_t sn_mx_encode_blocks(sn_mx_block_encoder *put, int parameter, const uint8_t *words,
                                            size_t count, uint8_t *out, size_t capacity, size_t *consumed)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const size_t size = sn_mx_block_size(f, SN_MX_BLOCK_WORDS), whole = count / SN_MX_BLOCK_WORDS, room = capacity / size;
    const size_t blocks = whole < room ? whole : room, rest = count % SN_MX_BLOCK_WORDS;
    for (size_t i = 0; i < blocks; i++)
        put(out + i * size, parameter, words + i * SN_MX_BLOCK_BYTES);
    *consumed = blocks * SN_MX_BLOCK_WORDS;
    if (blocks < whole || !rest || sn_mx_block_size(f, rest) > capacity - blocks * size)
        return blocks * size;
    *consumed = count;
    return (size_t)(sn_mx_put(out + blocks * size, parameter, words + blocks * SN_MX_BLOCK_BYTES, (unsigned)rest) - out);
}

/* sn_decode_part, of a body that is long enough. */
static SN_INLINE ptrdiff_t sn_mx_decode_blocks(sn_mx_block_decoder *take, int parameter, const uint8_t *body,
                                               uint8_t *words, size_t count)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const size_t size = sn_mx_block_size(f, SN_MX_BLOCK_WORDS), blocks = count / SN_MX_BLOCK_WORDS;
    const size_t rest = count % SN_MX_BLOCK_WORDS;
    for (size_t i = 0; i < blocks; i++)
        take(body + i * size, parameter, words + i * SN_MX_BLOCK_BYTES);
    if (!rest)
        return (ptrdiff_t)(blocks * size);
    if (sn_mx_take(body + blocks * size, parameter, words + blocks * SN_MX_BLOCK_BYTES, (unsigned)rest) < 0)
        return -1;
    return (ptrdiff_t)(blocks * size + sn_mx_block_size(f, rest));
}

/* sn_roundtrip. */
static SN_INLINE void sn_mx_round_blocks(sn_mx_block_rounder *round, int parameter, const uint8_t *words, size_t count,
                                         uint8_t *out)
{
    for (; count >= SN_MX_BLOCK_WORDS; count -= SN_MX_BLOCK_WORDS) {
        round(parameter, words, out);
        words += SN_MX_BLOCK_BYTES;
        out += SN_MX_BLOCK_BYTES;
    }
    if (count)
        sn_mx_round(parameter, words, out, (unsigned)count);
}

/* The kernels of one implementation, each element type a copy of its own: made of `put`, `take` and `round_block` of the
   file that uses this. */
#define SN_MX_EACH(call) \
    parameter == SN_MX_E4M3   ? call(SN_MX_E4M3) \
    : parameter == SN_MX_E5M2 ? call(SN_MX_E5M2) \
    : parameter == SN_MX_E2M3 ? call(SN_MX_E2M3) \
                              : call(SN_MX_E2M1)
#define SN_MX_ENCODE(parameter) sn_mx_encode_blocks(put, parameter, words, count, out, capacity, consumed)
#define SN_MX_DECODE(parameter) sn_mx_decode_blocks(take, parameter, body, words, count)
#define SN_MX_ROUND(parameter) sn_mx_round_blocks(round_block, parameter, words, count, out)
#define SN_MX_KERNELS(target, suffix) \
    target size_t sn_mx_encode##suffix(int parameter, const uint8_t *words, size_t count, size_t first, uint8_t *out, \
                                       size_t capacity, size_t *consumed) \
    { \
        (void)first; \
        return SN_MX_EACH(SN_MX_ENCODE); \
    } \
    target ptrdiff_t sn_mx_decode##suffix(int parameter, const uint8_t *body, size_t length, uint8_t *words, \
                                          size_t count) \
    { \
        (void)length; \
        return SN_MX_EACH(SN_MX_DECODE); \
    } \
    target void sn_mx_roundtrip##suffix(int parameter, const uint8_t *words, size_t count, uint8_t *out) \
    { \
        SN_MX_EACH(SN_MX_ROUND); \
    }

#endif
