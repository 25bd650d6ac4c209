/* Codec 7 with AVX2, bit for bit as mx.c, which handles incomplete blocks. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
#include "codecs/mx_avx2.h"

/* Conversion of binary16, which has_avx2 in codecs.c looks for too. */
#define TARGET __attribute__((target("avx2,f16c")))
#define SN_MX_INLINE static SN_INLINE TARGET

enum { REGISTERS = 4, LANES = 8 };

typedef __m256i lanes;
typedef __m256i row; /* with the words of both halves by turns, in fours */

SN_MX_INLINE lanes load(const uint8_t *words) { return sn_load_8(words); }
SN_MX_INLINE void store(uint8_t *words, lanes x) { sn_store_8(words, x); }
SN_MX_INLINE lanes set(int32_t x) { return _mm256_set1_epi32(x); }
SN_MX_INLINE uint32_t first(lanes x) { return (uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(x)); }
SN_MX_INLINE lanes and(lanes x, lanes y) { return _mm256_and_si256(x, y); }
SN_MX_INLINE lanes or(lanes x, lanes y) { return _mm256_or_si256(x, y); }
SN_MX_INLINE lanes add(lanes x, lanes y) { return _mm256_add_epi32(x, y); }
SN_MX_INLINE lanes sub(lanes x, lanes y) { return _mm256_sub_epi32(x, y); }
SN_MX_INLINE lanes min(lanes x, lanes y) { return _mm256_min_epi32(x, y); }
SN_MX_INLINE lanes max(lanes x, lanes y) { return _mm256_max_epi32(x, y); }
SN_MX_INLINE lanes down(lanes x, unsigned bits) { return _mm256_srli_epi32(x, (int)bits); }

SN_MX_INLINE lanes add_floats(lanes x, lanes y)
{
    return _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y)));
}

SN_MX_INLINE lanes sub_floats(lanes x, lanes y)
{
    return _mm256_castps_si256(_mm256_sub_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y)));
}

SN_MX_INLINE lanes greatest_of(const lanes *of) { return sn_mx_greatest(max(max(of[0], of[1]), max(of[2], of[3]))); }

/* Packs 32 numbers of 32 bits to bytes, by signed saturation and then that of `pack`. */
#define PACKED(pack, of) pack(_mm256_packs_epi32((of)[0], (of)[1]), _mm256_packs_epi32((of)[2], (of)[3]))

SN_MX_INLINE row top_bytes(const lanes *of) { return PACKED(_mm256_packs_epi16, of); } /* saturation keeps the signs */

SN_MX_INLINE row low_bytes(const lanes *of)
{
    const lanes low[REGISTERS] = {and(of[0], set(0xff)), and(of[1], set(0xff)), and(of[2], set(0xff)),
                                  and(of[3], set(0xff))};
    return PACKED(_mm256_packus_epi16, low);
}

SN_MX_INLINE void store_row(uint8_t *out, sn_mx_format f, row elements)
{
    sn_mx_store_row(out, f, _mm256_permutevar8x32_epi32(elements, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

/* Stores the words of sixteen elements. */
SN_MX_INLINE void store_half(uint8_t *words, sn_mx_format f, __m128i elements, __m256 factor)
{
    const __m256i wide = _mm256_cvtepu8_epi16(elements);
    const __m256i signs = _mm256_and_si256(_mm256_slli_epi16(wide, (int)(16 - f.bits)),
                                           _mm256_set1_epi16((short)SN_MX_HALF_SIGN));
    const __m256i magnitudes = _mm256_and_si256(_mm256_slli_epi16(wide, (int)(SN_MX_HALF_FRACTION - f.mantissa)),
                                                _mm256_set1_epi16((short)sn_mx_half_magnitude(f)));
    const __m256i halves = _mm256_or_si256(signs, magnitudes);
    const __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    const __m256 high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    sn_store_8(words, _mm256_castps_si256(_mm256_mul_ps(low, factor)));
    sn_store_8(words + 32, _mm256_castps_si256(_mm256_mul_ps(high, factor)));
}

SN_MX_INLINE void store_products(uint8_t *words, sn_mx_format f, __m256i elements, float factor)
{
    store_half(words, f, _mm256_castsi256_si128(elements), _mm256_set1_ps(factor));
    store_half(words + 64, f, _mm256_extracti128_si256(elements, 1), _mm256_set1_ps(factor));
}

#define load_row sn_mx_load_row
#define elements_of sn_mx_elements
#define are_products sn_mx_are_products
#include "codecs/mx_blocks.h"

SN_MX_KERNELS(TARGET, _avx2)
#endif
