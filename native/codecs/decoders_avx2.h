/* Decodes codecs 1 and 2 with AVX2, given a function that expands a burst's vectors: shuffles here, one instruction
   with AVX-512. The end of a burst is known only after a load, two look-ups and two additions, one burst after the
   other. So a decoder first computes, for every offset of a block at once, the length of a burst that starts there, and
   then steps from burst to burst with one look-up each. */
#ifndef SOFTNIC_DECODERS_AVX2_H
#define SOFTNIC_DECODERS_AVX2_H
#include "codecs/bursts_avx2.h"
#include "codecs/kernels.h"

/* Expands a burst's vectors, each to the top of its lane, zeros below; may touch SN_BURST_BOUND bytes. `tags` has those
   of lane i in the low bits of lane i, and others above them. */
typedef __m256i sn_expander(const uint8_t *burst, __m256i tags);

SN_INLINE_AVX2 __m256i sn_expand_8(const uint8_t *burst, __m256i tags)
{
    const uint8_t *const low = burst + 2, *const high = low + sn_ends[burst[0]][3];
    (void)tags;
    return _mm256_shuffle_epi8(sn_load_two_quads(low, high),
                               sn_load_two_quads(sn_expand[burst[0]], sn_expand[burst[1]]));
}

/* Returns the factors of vectors at the top of their lane, taken as signed integers: by tag, the sign bit set where the
   lane already is the word. */
SN_INLINE_AVX2 __m256 sn_scales(float of_8, float of_16)
{
    return _mm256_setr_ps(0, of_8, of_16, -1, 0, of_8, of_16, -1);
}

/* Returns the words of a burst; may touch SN_BURST_BOUND bytes. A zero vector is +0.0, whatever its sign. */
SN_INLINE_AVX2 __m256i sn_decode_burst_8(sn_expander *expand, const uint8_t *burst, __m256 scales)
{
    const __m256i tags = _mm256_srlv_epi32(_mm256_set1_epi32((int32_t)sn_load32(burst)),
                                           _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m256i lanes = expand(burst, tags);
    const __m256 scale = _mm256_permutevar_ps(scales, tags); /* uses the low two bits only */
    const __m256 value = _mm256_cvtepi32_ps(_mm256_sign_epi32(sn_magnitudes(lanes), lanes));
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_mul_ps(value, scale), _mm256_castsi256_ps(lanes), scale));
}

SN_INLINE_AVX2 void sn_store_silent_bursts(uint8_t *words, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        sn_store_8(words + 32 * i, _mm256_setzero_si256());
}

/* Offsets in a block. */
enum { SN_OFFSETS = 2048 };

/* Returns how many offsets from `in` on make a block: those with SN_BURST_BOUND bytes before `end`, up to the size of
   `count` words. */
static inline size_t sn_places(const uint8_t *in, const uint8_t *end, size_t count)
{
    const ptrdiff_t readable = end - in - SN_BURST_BOUND;
    const size_t groups = count / SN_GROUP_WORDS;
    const size_t taken = groups < SN_OFFSETS ? (groups + 1) * SN_GROUP_BOUND : SN_OFFSETS;
    const size_t most = taken < SN_OFFSETS ? taken : SN_OFFSETS;
    return readable < 0 ? 0 : (size_t)readable < most ? (size_t)readable : most;
}

/* Computes the sizes of bursts that would start at each of the block's offsets. Reads as far as these bursts may
   reach. */
SN_INLINE_AVX2 void sn_burst_sizes(const uint8_t *in, size_t places, uint8_t *sizes)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    /* Bytes of two lanes' vectors, by their four bits of tags; the tag word's own bytes count to their low nibbles. */
    const __m256i of_low = _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 2, 3, 5, 2, 3, 4, 6, 3, 4, 5, 7, 5, 6, 7, 9));
    const __m256i of_high = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 1, 2, 3, 5, 2, 3, 4, 6, 4, 5, 6, 8));
    for (size_t i = 0; i < places; i += 32) {
        __m256i size = _mm256_setzero_si256();
        for (size_t half = 0; half < 2; half++) {
            const __m256i tags = sn_load_8(in + i + half);
            const __m256i low = _mm256_and_si256(tags, nibble);
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(tags, 4), nibble);
            size = _mm256_add_epi8(size, _mm256_shuffle_epi8(of_low, low));
            size = _mm256_add_epi8(size, _mm256_shuffle_epi8(of_high, high));
        }
        sn_store_8(sizes + i, size);
    }
}

/* Codec 1. The reference decodes what is behind the last block. */
SN_INLINE_AVX2 ptrdiff_t sn_decode_bursts(sn_expander *expand, int k, const uint8_t *body, size_t length,
                                          uint8_t *words, size_t count)
{
    enum { ZERO_BURSTS = 4 }; /* bursts without vectors checked at once: 8 zero bytes */
    const uint8_t *in = body, *const end = body + length;
    const __m256 scales = sn_scales(0x1p-31f, 0x1p-31f);
    uint8_t sizes[SN_OFFSETS];
    for (size_t at, places; count >= SN_BURST_WORDS && (places = sn_places(in, end, count)) > 0; in += at) {
        at = 0;
        sn_burst_sizes(in, places, sizes);
        while (at < places && count >= SN_BURST_WORDS) {
            size_t bursts = 1;
            if (count >= ZERO_BURSTS * SN_BURST_WORDS && sn_load64(in + at) == 0) {
                bursts = ZERO_BURSTS;
                sn_store_silent_bursts(words, ZERO_BURSTS);
                at += 2 * ZERO_BURSTS;
            } else {
                sn_store_8(words, sn_decode_burst_8(expand, in + at, scales));
                at += sizes[at];
            }
            words += 4 * SN_BURST_WORDS * bursts;
            count -= SN_BURST_WORDS * bursts;
        }
    }
    const ptrdiff_t rest = sn_inceptionn_decode(k, in, (size_t)(end - in), words, count);
    return rest < 0 ? -1 : in - body + rest;
}

/* Decodes a group of codec 2 whose flag byte is at `in`, given the sizes from there on; may touch SN_GROUP_BOUND bytes.
   Returns its bytes, or 0 if a burst flagged as nonzero has no vectors. */
SN_INLINE_AVX2 size_t sn_decode_group(sn_expander *expand, const uint8_t *in, const uint8_t *sizes, __m256 scales,
                                      uint8_t *words)
{
    size_t at = 1;
    int empty = 0;
    if (*in == 0xff) {
        SN_UNROLL
        for (unsigned i = 0; i < SN_GROUP_BURSTS; i++) {
            empty |= sizes[at] == 2;
            sn_store_8(words + 32 * i, sn_decode_burst_8(expand, in + at, scales));
            at += sizes[at];
        }
        return empty ? 0 : at;
    }
    sn_store_silent_bursts(words, SN_GROUP_BURSTS);
    for (uint32_t flags = *in; flags; flags &= flags - 1) {
        empty |= sizes[at] == 2;
        sn_store_8(words + 32 * __builtin_ctz(flags), sn_decode_burst_8(expand, in + at, scales));
        at += sizes[at];
    }
    return empty ? 0 : at;
}

/* Codec 2. Decodes whole groups, the last ones from a copy that may be read past its end. */
SN_INLINE_AVX2 ptrdiff_t sn_decode_groups(sn_expander *expand, int k, const uint8_t *body, size_t length,
                                          uint8_t *words, size_t count)
{
    enum { LAST = SN_GROUP_BOUND + SN_BURST_BOUND };
    const uint8_t *in = body, *start = body, *end = body + length, *readable = end;
    ptrdiff_t before = 0; /* bytes in front of `start` */
    const float step = sn_float_of((uint32_t)(127 + 1 - k) << 23);
    const __m256 scales = sn_scales(0x1p-24f * step, 0x1p-16f * step);
    uint8_t sizes[SN_OFFSETS], scratch[2 * LAST];
    while (count >= SN_GROUP_WORDS) {
        if (start == body && end - in < LAST) {
            const size_t left = (size_t)(end - in);
            memset(scratch, 0, sizeof scratch);
            memcpy(scratch, in, left);
            before = in - body;
            in = start = scratch;
            end = scratch + left;
            readable = scratch + sizeof scratch;
        }
        const size_t places = sn_places(in, readable, count);
        sn_burst_sizes(in, places, sizes);
        size_t at = 0;
        for (; count >= SN_GROUP_WORDS && at + SN_GROUP_BOUND <= places; count -= SN_GROUP_WORDS) {
            const size_t size = sn_decode_group(expand, in + at, sizes + at, scales, words);
            at += size;
            if (size == 0 || at > (size_t)(end - in))
                return -1;
            words += 4 * SN_GROUP_WORDS;
        }
        in += at;
    }
    const ptrdiff_t rest = sn_bounded_decode(k, in, (size_t)(end - in), words, count);
    return rest < 0 ? -1 : before + (in - start) + rest;
}

#endif
