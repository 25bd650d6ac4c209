/* Bursts (bursts.h) with AVX2, shared by codecs 1 and 2. The functions are compiled for AVX2 whatever the rest is
   compiled for, and called only where the CPU has it (codecs.c selects). Vectors are at the top of their lanes
   (shuffles.h). A coding block of 16 words is split into two registers, so that the tags of both come out in order:
   quads 0 and 2 (words 0..3 and 8..11) in one, quads 1 and 3 in the other. */
#ifndef SOFTNIC_BURSTS_AVX2_H
#define SOFTNIC_BURSTS_AVX2_H
#include "codecs/groups.h"
#include "codecs/shuffles.h"

#ifndef SN_TARGET_AVX2 /* otherwise bursts_avx512.h has included the intrinsics */
#include <immintrin.h>
#define SN_TARGET_AVX2 __attribute__((target("avx2")))
#endif
#define SN_INLINE_AVX2 static SN_INLINE SN_TARGET_AVX2

/* Eight words split: their vectors, and all ones in lanes whose vector has at least 8, 16, 32 bits. */
typedef struct {
    __m256i vector;
    __m256i from_8;
    __m256i from_16;
    __m256i is_32;
} sn_split_8;

/* A coding block split: the tag words of its two bursts, the first in the low half, and the vectors of its quads. */
typedef struct {
    uint32_t tags;
    __m128i quad[4];
} sn_split_coding_block;

SN_INLINE_AVX2 __m256i sn_load_8(const uint8_t *words)
{
    return _mm256_loadu_si256((const __m256i *)words);
}

SN_INLINE_AVX2 void sn_store_8(uint8_t *words, __m256i lanes)
{
    _mm256_storeu_si256((__m256i *)words, lanes);
}

SN_INLINE_AVX2 __m128i sn_load_quad(const uint8_t *words)
{
    return _mm_loadu_si128((const __m128i *)words);
}

SN_INLINE_AVX2 __m256i sn_load_two_quads(const uint8_t *low, const uint8_t *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(sn_load_quad(low)), sn_load_quad(high), 1);
}

SN_INLINE_AVX2 __m256i sn_magnitudes(__m256i words)
{
    return _mm256_and_si256(words, _mm256_set1_epi32(0x7fffffff));
}

SN_INLINE_AVX2 __m256i sn_choose(__m256i otherwise, __m256i chosen, __m256i mask)
{
    return _mm256_blendv_epi8(otherwise, chosen, mask);
}

/* Returns the two tag bits of each lane as its halves: 8 or 32 bits set the low one, 16 or 32 the high one. */
SN_INLINE_AVX2 __m256i sn_tag_halves(sn_split_8 split)
{
    const __m256i low = _mm256_xor_si256(_mm256_xor_si256(split.from_8, split.from_16), split.is_32);
    return _mm256_blend_epi16(low, split.from_16, 0xaa);
}

/* Joins quads 0 and 2 with 1 and 3. */
SN_INLINE_AVX2 sn_split_coding_block sn_join_quads(sn_split_8 even, sn_split_8 odd)
{
    const __m256i tags = _mm256_packs_epi16(sn_tag_halves(even), sn_tag_halves(odd));
    return (sn_split_coding_block){
        (uint32_t)_mm256_movemask_epi8(tags),
        {_mm256_castsi256_si128(even.vector), _mm256_castsi256_si128(odd.vector),
         _mm256_extracti128_si256(even.vector, 1), _mm256_extracti128_si256(odd.vector, 1)},
    };
}

SN_INLINE_AVX2 uint8_t *sn_pack_quad(uint8_t *out, uint32_t tags, __m128i vectors)
{
    _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(vectors, sn_load_quad(sn_compact[tags])));
    return out + sn_ends[tags][3];
}

/* sn_pack_burst for burst 0 or 1 of a coding block. */
SN_INLINE_AVX2 uint8_t *sn_pack_split(uint8_t *out, const sn_split_coding_block *split, unsigned burst)
{
    const uint32_t tags = split->tags >> 16 * burst & 0xffff;
    sn_store16(out, (uint16_t)tags);
    out = sn_pack_quad(out + 2, tags & 0xff, split->quad[2 * burst]);
    return sn_pack_quad(out, tags >> 8, split->quad[2 * burst + 1]);
}

/* As sn_zero_test. */
SN_INLINE_AVX2 int sn_is_zero_group(const uint8_t *words, int32_t most)
{
    const __m256i limit = _mm256_set1_epi32(most);
    __m256i greatest = sn_magnitudes(sn_load_8(words));
    if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(greatest, limit)))
        return 0; /* in most data that is not all zero, the first burst decide */
    for (unsigned i = 1; i < SN_GROUP_BURSTS; i++)
        greatest = _mm256_max_epi32(greatest, sn_magnitudes(sn_load_8(words + 32 * i)));
    return _mm256_movemask_epi8(_mm256_cmpgt_epi32(greatest, limit)) == 0;
}

#endif
