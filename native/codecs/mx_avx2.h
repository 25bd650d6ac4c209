/* Rows of codec 7 with AVX2, shared with AVX-512: 32 elements, each at the bottom of a byte, to their bytes and back.
   No byte but theirs is touched. */
#ifndef SOFTNIC_MX_AVX2_H
#define SOFTNIC_MX_AVX2_H
#include "codecs/bursts_avx2.h"
#include "codecs/mx.h"

/* Returns the largest of eight numbers in all lanes. */
SN_INLINE_AVX2 __m256i sn_mx_greatest(__m256i lanes)
{
    lanes = _mm256_max_epi32(lanes, _mm256_permute2x128_si256(lanes, lanes, 1));
    lanes = _mm256_max_epi32(lanes, _mm256_shuffle_epi32(lanes, 0x4e));
    return _mm256_max_epi32(lanes, _mm256_shuffle_epi32(lanes, 0xb1));
}

/* Returns elements of magnitudes that may be too large, with the signs of the highest bits of `tops`. */
SN_INLINE_AVX2 __m256i sn_mx_elements(sn_mx_format f, __m256i magnitudes, __m256i tops)
{
    const __m256i signs = _mm256_and_si256(tops, _mm256_set1_epi8((char)0x80));
    const __m256i kept = _mm256_min_epu8(magnitudes, _mm256_set1_epi8((char)f.most));
    return _mm256_or_si256(kept, f.bits == 8 ? signs : _mm256_srli_epi16(signs, f.bits == 6 ? 2 : 4));
}

SN_INLINE_AVX2 void sn_mx_store_row(uint8_t *out, sn_mx_format f, __m256i elements)
{
    if (f.bits == 8) {
        sn_store_8(out, elements);
    } else if (f.bits == 4) {
        const __m256i pairs = _mm256_maddubs_epi16(elements, _mm256_set1_epi16(0x1001));
        const __m128i low = _mm256_castsi256_si128(pairs), high = _mm256_extracti128_si256(pairs, 1);
        _mm_storeu_si128((__m128i *)out, _mm_packus_epi16(low, high));
    } else {
        const __m256i three = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
                                               0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
        const __m256i pairs = _mm256_maddubs_epi16(elements, _mm256_set1_epi16(0x4001));
        const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x10000001));
        const __m256i halves = _mm256_shuffle_epi8(fours, three);
        const __m128i high = _mm256_extracti128_si256(halves, 1);
        _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(halves));
        _mm_storel_epi64((__m128i *)(out + 12), high);
        sn_store32(out + 20, (uint32_t)_mm_extract_epi32(high, 2));
    }
}

SN_INLINE_AVX2 __m256i sn_mx_load_row(const uint8_t *in, sn_mx_format f)
{
    if (f.bits == 8)
        return sn_load_8(in);
    if (f.bits == 4) {
        const __m256i pairs = _mm256_cvtepu8_epi16(sn_load_quad(in));
        return _mm256_and_si256(_mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4)), _mm256_set1_epi8(0x0f));
    }
    const __m256i three = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
                                           4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    const __m256i fours = _mm256_shuffle_epi8(sn_load_two_quads(in, in + 8), three);
    const __m256i one = _mm256_and_si256(fours, _mm256_set1_epi32(0x3f));
    const __m256i two = _mm256_and_si256(_mm256_slli_epi32(fours, 2), _mm256_set1_epi32(0x3f00));
    const __m256i third = _mm256_and_si256(_mm256_slli_epi32(fours, 4), _mm256_set1_epi32(0x3f0000));
    const __m256i fourth = _mm256_and_si256(_mm256_slli_epi32(fours, 6), _mm256_set1_epi32(0x3f000000));
    return _mm256_or_si256(_mm256_or_si256(one, two), _mm256_or_si256(third, fourth));
}

/* Returns whether products give the words of elements: no element is an infinity or a NaN, and no product a denormal or
   infinite. */
SN_INLINE_AVX2 int sn_mx_are_products(sn_mx_format f, uint32_t scale, __m256i elements)
{
    const __m256i magnitudes = _mm256_and_si256(elements, _mm256_set1_epi8((char)((1u << (f.bits - 1)) - 1)));
    if (!sn_mx_is_product_scale(scale))
        return scale == 0 && _mm256_movemask_epi8(_mm256_cmpeq_epi8(magnitudes, _mm256_setzero_si256())) == -1;
    return f.bits < 8 ||
           !_mm256_movemask_epi8(_mm256_cmpgt_epi8(magnitudes, _mm256_set1_epi8((char)f.most)));
}

#endif
