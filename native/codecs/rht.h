/* Codec 5: a fixed random rotation makes the words of a block look Gaussian, and the levels of the Lloyd-Max quantiser
   of N(0, 1) encode them in `b` bits. After EDEN (Vargaftik et al., ICML 2022), but the scale is the block's largest
   coefficient, which so always meets the top level: a second encoding finds the same scale and the same indices.

   All implementations share the ways from blocks to bodies here. Each provides the three functions of a whole block of
   128 words; shorter blocks and those with huge words, infinities or NaNs are rare and left to the scalar ones. The
   order of every addition is fixed, no result is fused, and denormals are kept whatever the process has configured, so
   that all give the same bits. */
#ifndef SOFTNIC_RHT_H
#define SOFTNIC_RHT_H
#include <stddef.h>
#include <stdint.h>

#include "codecs/codes.h"

enum {
    SN_RHT_BLOCK_WORDS = 128,
    SN_RHT_BLOCK_BYTES = 4 * SN_RHT_BLOCK_WORDS,
    SN_RHT_LEAST_BLOCK = 8, /* words; fewer at the end of a body are sent as they are */
    SN_RHT_SCALE_BYTES = 2,
    SN_RHT_BOUND = SN_RHT_SCALE_BYTES + SN_RHT_BLOCK_BYTES, /* bytes that encoding a block may touch */
    SN_RHT_FEWEST_BITS = 3,
    SN_RHT_WIDTHS = 4,
    SN_RHT_MOST_LEVELS = 32
};

/* Scales: the upper halves of floats. */
enum {
    SN_RHT_ZERO = 0,             /* a block of zeros, without levels */
    SN_RHT_LEAST_SCALE = 0x0d80, /* 2^-100: smaller ones are sent as zero */
    SN_RHT_SAFE_SCALE = 0x7b80,  /* 2^120: the transform of what is smaller does not overflow */
    SN_RHT_MALFORMED = 0x7f80,   /* from here on */
    SN_RHT_AS_IT_IS = 0xffff     /* the words follow unchanged */
};

/* Magnitudes of coefficients from which on a word of the block may be out of the range that is transformed: a word of
   2^113 makes one of 2^110 at least. */
enum { SN_RHT_HUGE_COEFFICIENT = (127 + 109) << 23 };

/* By the bits of a word less SN_RHT_FEWEST_BITS. */
extern const float sn_rht_levels[SN_RHT_WIDTHS][SN_RHT_MOST_LEVELS];
extern const float sn_rht_thresholds[SN_RHT_WIDTHS][SN_RHT_MOST_LEVELS];

/* The thresholds for a binary search: from 2^n on, those of its step n, by the index found before it. */
extern const float sn_rht_searches[SN_RHT_WIDTHS][SN_RHT_MOST_LEVELS];

/* The sign bits that the transform flips before, and its inverse after. */
extern const uint32_t sn_rht_signs[SN_RHT_BLOCK_WORDS];

/* Encodes `m` (8, 16, 32, 64 or 128) words, a copy that nobody changes. May touch 2 + 4m bytes. Returns the end. */
uint8_t *sn_rht_put(uint8_t *out, int b, const uint8_t *words, unsigned m);

/* Decodes a block of `m` words. Returns its end, or NULL if it is malformed or ends behind `end`. */
const uint8_t *sn_rht_take(const uint8_t *in, const uint8_t *end, int b, uint8_t *words, unsigned m);

/* Encodes and decodes a block of `m` words in place. */
void sn_rht_round(int b, uint8_t *words, unsigned m);

/* The same for whole blocks, as implementations provide them. */
typedef uint8_t *sn_rht_block_encoder(uint8_t *out, int b, const uint8_t *words);
typedef const uint8_t *sn_rht_block_decoder(const uint8_t *in, const uint8_t *end, int b, uint8_t *words);
typedef void sn_rht_block_rounder(int b, const uint8_t *words, uint8_t *out);

/* Returns the scale of a block whose largest coefficient has these bits: rounded up to 8 significant bits, except that
   what is above them by rounding errors only is not. */
static inline uint32_t sn_rht_scale(uint32_t greatest)
{
    const uint32_t scale = (greatest + 0xffff - 256) >> 16;
    return scale < SN_RHT_LEAST_SCALE ? SN_RHT_ZERO : scale;
}

/* Floating-point control: denormals as IEEE 754 has them and rounding to nearest, if the process has chosen otherwise.
   Returns what `sn_restore_floats` takes. */
#if defined(__x86_64__)
#include <xmmintrin.h>
typedef unsigned sn_float_control;
static inline sn_float_control sn_standard_floats(void)
{
    enum { FLUSH = 0x8000, ROUNDING = 0x6000, DENORMALS_ARE_ZERO = 0x0040 };
    const unsigned control = _mm_getcsr();
    if (control & (FLUSH | ROUNDING | DENORMALS_ARE_ZERO))
        _mm_setcsr(control & ~(unsigned)(FLUSH | ROUNDING | DENORMALS_ARE_ZERO));
    return control;
}
static inline void sn_restore_floats(sn_float_control control)
{
    enum { FLUSH = 0x8000, ROUNDING = 0x6000, DENORMALS_ARE_ZERO = 0x0040 };
    if (control & (FLUSH | ROUNDING | DENORMALS_ARE_ZERO))
        _mm_setcsr(control);
}
#elif defined(__aarch64__)
typedef uint64_t sn_float_control;
static inline sn_float_control sn_standard_floats(void)
{
    const uint64_t changed = (uint64_t)7 << 22; /* flush to zero, rounding */
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control)::"memory");
    if (control & changed)
        __asm__ volatile("msr fpcr, %0" ::"r"(control & ~changed) : "memory");
    return control;
}
static inline void sn_restore_floats(sn_float_control control)
{
    if (control & (uint64_t)7 << 22)
        __asm__ volatile("msr fpcr, %0" ::"r"(control) : "memory");
}
#else
typedef int sn_float_control;
static inline sn_float_control sn_standard_floats(void) { return 0; }
static inline void sn_restore_floats(sn_float_control control) { (void)control; }
#endif

/* Returns the words of the next block in the last `count` (at least 8) words of a body. */
static inline unsigned sn_rht_block_of(size_t count)
{
    unsigned m = SN_RHT_BLOCK_WORDS;
    while (m > count)
        m /= 2;
    return m;
}

/* Encodes the last words of a body, fewer than a block: at most 4 bytes a word and 2 for each of 4 blocks. */
static inline uint8_t *sn_rht_put_rest(uint8_t *out, int b, const uint8_t *words, size_t count)
{
    for (unsigned m; count >= SN_RHT_LEAST_BLOCK; words += 4 * m, count -= m) {
        uint8_t copy[SN_RHT_BLOCK_BYTES];
        m = sn_rht_block_of(count);
        memcpy(copy, words, 4 * m);
        out = sn_rht_put(out, b, copy, m);
    }
    memcpy(out, words, 4 * count);
    return out + 4 * count;
}

/* sn_encode (codecs.h): whole blocks, then the rest if all of it fits. Begins at a block's start, or `count` is at most
   what is left of one. */
static SN_INLINE size_t sn_rht_encode_blocks(sn_rht_block_encoder *put, int b, const uint8_t *words, size_t count,
                                             uint8_t *out, size_t capacity, size_t *consumed)
{
    const sn_float_control control = sn_standard_floats();
    uint8_t *const start = out, *const end = out + capacity;
    uint8_t scratch[SN_RHT_BOUND + 8];
    size_t done = 0;
    for (; count - done >= SN_RHT_BLOCK_WORDS && end - out >= SN_RHT_BOUND; done += SN_RHT_BLOCK_WORDS)
        out = put(out, b, words + 4 * done);
    while (done < count) {
        const size_t some = count - done < SN_RHT_BLOCK_WORDS ? count - done : SN_RHT_BLOCK_WORDS;
        const uint8_t *const at = words + 4 * done;
        const ptrdiff_t size = (some < SN_RHT_BLOCK_WORDS ? sn_rht_put_rest(scratch, b, at, some)
                                                          : put(scratch, b, at)) - scratch;
        if (size > end - out)
            break;
        memcpy(out, scratch, (size_t)size);
        out += size;
        done += some;
    }
    *consumed = done;
    sn_restore_floats(control);
    return (size_t)(out - start);
}

/* sn_decode_part. */
static SN_INLINE ptrdiff_t sn_rht_decode_blocks(sn_rht_block_decoder *take, int b, const uint8_t *body, size_t length,
                                                uint8_t *words, size_t count)
{
    const sn_float_control control = sn_standard_floats();
    const uint8_t *in = body, *const end = body + length;
    for (; in && count >= SN_RHT_BLOCK_WORDS; count -= SN_RHT_BLOCK_WORDS, words += SN_RHT_BLOCK_BYTES)
        in = take(in, end, b, words);
    for (unsigned m; in && count >= SN_RHT_LEAST_BLOCK; words += 4 * m, count -= m) {
        m = sn_rht_block_of(count);
        in = sn_rht_take(in, end, b, words, m);
    }
    sn_restore_floats(control);
    if (!in || (size_t)(end - in) < 4 * count)
        return -1;
    if (count)
        memcpy(words, in, 4 * count);
    return in + 4 * count - body;
}

/* sn_roundtrip. */
static SN_INLINE void sn_rht_round_blocks(sn_rht_block_rounder *round, int b, const uint8_t *words, size_t count,
                                          uint8_t *out)
{
    const sn_float_control control = sn_standard_floats();
    for (; count >= SN_RHT_BLOCK_WORDS; count -= SN_RHT_BLOCK_WORDS) {
        round(b, words, out);
        words += SN_RHT_BLOCK_BYTES;
        out += SN_RHT_BLOCK_BYTES;
    }
    if (count)
        memmove(out, words, 4 * count);
    for (unsigned m; count >= SN_RHT_LEAST_BLOCK; out += 4 * m, count -= m) {
        m = sn_rht_block_of(count);
        sn_rht_round(b, out, m);
    }
    sn_restore_floats(control);
}

#endif
