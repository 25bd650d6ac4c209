/* Rows of lanes (lanes.h) with AVX2, for lanes of up to 16 bits. A coding block's sixteen lanes are in one register as
   16-bit numbers for packing, and in two as 32-bit numbers after unpacking. */
#ifndef SOFTNIC_LANES_AVX2_H
#define SOFTNIC_LANES_AVX2_H
#include "codecs/bursts_avx2.h"
#include "codecs/lanes.h"

/* Bytes that the functions below may touch from the start of a coding block's row. */
enum { SN_ROW_BOUND = 40, SN_WIDEST_ROW = 16 };

/* Returns two registers of eight 32-bit lanes below 2^15 (or in the range of int16_t) as sixteen of 16 bits, in
   order. */
SN_INLINE_AVX2 __m256i sn_halve_lanes(__m256i low, __m256i high)
{
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
}

SN_INLINE_AVX2 __m128i sn_count(int bits) { return _mm_cvtsi32_si128(bits); }

/* Stores four lanes of `width` bits from each of two numbers, the second behind the first. */
static SN_INLINE void sn_store_fours(uint8_t *out, uint64_t low, uint64_t high, unsigned width)
{
    const unsigned odd = width % 2 * 4; /* bits of `low` in the byte where `high` begins */
    sn_store64(out, low);
    sn_store64(out + width / 2, odd ? high << odd | low >> (4 * width - odd) : high);
}

/* Writes sixteen lanes of `width` (4..16) bits, whose other bits are zero: 2 * width bytes. */
SN_INLINE_AVX2 void sn_store_row(uint8_t *out, __m256i lanes, unsigned width)
{
    const __m128i low = _mm256_castsi256_si128(lanes), high = _mm256_extracti128_si256(lanes, 1);
    if (width == 16) {
        sn_store_8(out, lanes);
    } else if (width == 8) {
        _mm_storeu_si128((__m128i *)out, _mm_packus_epi16(low, high));
    } else {
        const __m256i odd = _mm256_srli_epi32(lanes, 16), even = _mm256_blend_epi16(lanes, _mm256_setzero_si256(),
                                                                                    0xaa);
        const __m256i twos = _mm256_or_si256(even, _mm256_sll_epi32(odd, sn_count((int)width)));
        const __m256i upper = _mm256_srli_epi64(twos, 32), lower = _mm256_blend_epi32(twos, _mm256_setzero_si256(),
                                                                                      0xaa);
        const __m256i fours = _mm256_or_si256(lower, _mm256_sll_epi64(upper, sn_count(2 * (int)width)));
        sn_store_fours(out, (uint64_t)_mm256_extract_epi64(fours, 0), (uint64_t)_mm256_extract_epi64(fours, 1), width);
        sn_store_fours(out + width, (uint64_t)_mm256_extract_epi64(fours, 2),
                       (uint64_t)_mm256_extract_epi64(fours, 3), width);
    }
}

/* Lane i of eight begins at bit i * width, counted from the bytes that its half of a register is loaded from: the
   first, or the one where lane 4 begins. */
#define SN_BIT(width, i) ((i) < 4 ? (i) * (width) : ((i) - 4) * (width) + (width) % 2 * 4)
#define SN_FROM(width, i) SN_BIT(width, i) / 8
#define SN_LANE(width, i) SN_FROM(width, i), SN_FROM(width, i) + 1, SN_FROM(width, i) + 2, SN_FROM(width, i) + 3
#define SN_TAKEN(width) \
    {{SN_LANE(width, 0), SN_LANE(width, 1), SN_LANE(width, 2), SN_LANE(width, 3), SN_LANE(width, 4), \
      SN_LANE(width, 5), SN_LANE(width, 6), SN_LANE(width, 7)}, \
     {SN_BIT(width, 0) % 8, SN_BIT(width, 1) % 8, SN_BIT(width, 2) % 8, SN_BIT(width, 3) % 8, SN_BIT(width, 4) % 8, \
      SN_BIT(width, 5) % 8, SN_BIT(width, 6) % 8, SN_BIT(width, 7) % 8}}

/* Shuffle for unpacking eight lanes, by width: the bytes of each lane, and how far it is above their bit 0. */
static const struct {
    uint8_t bytes[32];
    uint32_t above[8];
} sn_taken[SN_WIDEST_ROW + 1] = {
    [4] = SN_TAKEN(4),   [5] = SN_TAKEN(5),   [6] = SN_TAKEN(6),   [7] = SN_TAKEN(7),   [8] = SN_TAKEN(8),
    [9] = SN_TAKEN(9),   [10] = SN_TAKEN(10), [11] = SN_TAKEN(11), [12] = SN_TAKEN(12), [13] = SN_TAKEN(13),
    [14] = SN_TAKEN(14), [15] = SN_TAKEN(15), [16] = SN_TAKEN(16),
};

/* Loads eight lanes of `width` (4..16) bits, each at the bottom of its lane, with undefined bits above. */
SN_INLINE_AVX2 __m256i sn_load_lanes(const uint8_t *in, unsigned width)
{
    if (width == 8)
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)in));
    if (width == 16)
        return _mm256_cvtepu16_epi32(sn_load_quad(in));
    const __m256i lanes = _mm256_shuffle_epi8(sn_load_two_quads(in, in + width / 2), sn_load_8(sn_taken[width].bytes));
    return _mm256_srlv_epi32(lanes, sn_load_8((const uint8_t *)sn_taken[width].above));
}

#endif
