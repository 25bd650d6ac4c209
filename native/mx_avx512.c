/* Codec 7 with AVX-512, bit for bit as mx.c, which handles incomplete blocks and those at the ends of the range of
   floats. mx_avx2.c explains the rounding. */
#include "kernels.h"

#ifdef SN_HAVE_AVX512
#include "bursts_avx512.h"
#include "mx_avx2.h"

enum { REGISTERS = 2, EXPONENTS = 255 << 23 };

typedef struct {
    __m512i words[REGISTERS];
    __m512i magnitudes[REGISTERS];
    uint32_t greatest; /* magnitude */
    __m512i exponent;  /* of it, in place; a usual one for zeros */
} block;

SN_INLINE_AVX512 block load_block(const uint8_t *words)
{
    block b;
    for (unsigned i = 0; i < REGISTERS; i++) {
        b.words[i] = _mm512_loadu_si512(words + 64 * i);
        b.magnitudes[i] = sn_magnitudes_16(b.words[i]);
    }
    const __m512i both = _mm512_max_epi32(b.magnitudes[0], b.magnitudes[1]);
    const __m256i half = _mm256_max_epi32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
    const __m128i most = _mm256_castsi256_si128(sn_mx_greatest(half));
    b.greatest = (uint32_t)_mm_cvtsi128_si32(most);
    const __m128i exponent = _mm_max_epi32(_mm_and_si128(most, _mm_set1_epi32(EXPONENTS)),
                                           _mm_set1_epi32(SN_MX_LEAST_USUAL << 23));
    b.exponent = _mm512_broadcastd_epi32(exponent);
    return b;
}

/* As in mx_avx2.c. */
typedef struct {
    __m512i least;
    __m512i base;
} limits;

SN_INLINE_AVX512 limits limits_of(sn_mx_format f, const block *b)
{
    const __m512i least = _mm512_sub_epi32(b->exponent, _mm512_set1_epi32(sn_mx_exponents(f) << 23));
    const __m512i units = _mm512_set1_epi32((int32_t)(23 - f.mantissa) << 23);
    return (limits){least, _mm512_sub_epi32(units, _mm512_srli_epi32(least, 23 - f.mantissa))};
}

SN_INLINE_AVX512 __m512i origins_of(sn_mx_format f, __m512i magnitudes, limits l)
{
    const __m512i own = _mm512_and_si512(magnitudes, _mm512_set1_epi32(EXPONENTS));
    const __m512i exponents = _mm512_max_epi32(own, l.least);
    const __m512i below = _mm512_srli_epi32(exponents, 23 - f.mantissa);
    return _mm512_add_epi32(_mm512_add_epi32(exponents, below), l.base);
}

SN_INLINE_AVX512 __m512 sum_of(__m512i magnitudes, __m512i origins)
{
    return _mm512_add_ps(_mm512_castsi512_ps(magnitudes), _mm512_castsi512_ps(origins));
}

/* Returns one byte of each lane of two registers: that whose place in the first lane is given. */
SN_INLINE_AVX512 __m256i bytes_of(const __m512i *of, char place)
{
    static const char lanes[64] = {0,  4,  8,  12, 16, 20, 24, 28, 32, 36,  40,  44,  48,  52,  56,  60,
                                   64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124};
    const __m512i which = _mm512_or_si512(_mm512_loadu_si512(lanes), _mm512_set1_epi8(place));
    return _mm512_castsi512_si256(_mm512_permutex2var_epi8(of[0], which, of[1]));
}

SN_INLINE_AVX512 void put(uint8_t *out, int parameter, const uint8_t *words)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const block b = load_block(words);
    if (!sn_mx_is_usual(b.greatest)) {
        sn_mx_put(out, parameter, words, SN_MX_BLOCK_WORDS);
        return;
    }
    const limits l = limits_of(f, &b);
    __m512i sums[REGISTERS]; /* whose low bytes are elements */
    for (unsigned i = 0; i < REGISTERS; i++)
        sums[i] = _mm512_castps_si512(sum_of(b.magnitudes[i], origins_of(f, b.magnitudes[i], l)));
    *out = sn_mx_scale(f, b.greatest);
    sn_mx_store_row(out + 1, f, sn_mx_elements(f, bytes_of(sums, 0), bytes_of(b.words, 3)));
}

SN_INLINE_AVX512 void take(const uint8_t *in, int parameter, uint8_t *words)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const __m256i elements = sn_mx_load_row(in + 1, f);
    if (!sn_mx_are_products(f, *in, elements)) {
        sn_mx_take(in, parameter, words, SN_MX_BLOCK_WORDS);
        return;
    }
    const __m512 factor = _mm512_set1_ps(sn_mx_factor(f, *in));
    const __m512i lanes = _mm512_cvtepu8_epi16(elements);
    const __m512i signs = _mm512_and_si512(_mm512_slli_epi16(lanes, 16 - f.bits),
                                           _mm512_set1_epi16((short)SN_MX_HALF_SIGN));
    const __m512i magnitudes = _mm512_and_si512(_mm512_slli_epi16(lanes, SN_MX_HALF_FRACTION - f.mantissa),
                                                _mm512_set1_epi16((short)sn_mx_half_magnitude(f)));
    const __m512i halves = _mm512_or_si512(signs, magnitudes);
    const __m512 low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    const __m512 high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
    _mm512_storeu_si512(words, _mm512_castps_si512(_mm512_mul_ps(low, factor)));
    _mm512_storeu_si512(words + 64, _mm512_castps_si512(_mm512_mul_ps(high, factor)));
}

SN_INLINE_AVX512 void round_block(int parameter, const uint8_t *words, uint8_t *out)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const block b = load_block(words);
    if (!sn_mx_is_usual(b.greatest)) {
        sn_mx_round(parameter, words, out, SN_MX_BLOCK_WORDS);
        return;
    }
    const uint32_t fraction = (f.most & ((1u << f.mantissa) - 1)) << (23 - f.mantissa);
    const limits l = limits_of(f, &b);
    const __m512i most = _mm512_or_si512(b.exponent, _mm512_set1_epi32((int32_t)fraction));
    for (unsigned i = 0; i < REGISTERS; i++) {
        const __m512i origins = origins_of(f, b.magnitudes[i], l);
        const __m512 sum = sum_of(b.magnitudes[i], origins);
        const __m512i rounded = _mm512_castps_si512(_mm512_sub_ps(sum, _mm512_castsi512_ps(origins)));
        _mm512_storeu_si512(out + 64 * i, sn_with_signs(_mm512_min_epi32(rounded, most), b.words[i]));
    }
}

SN_MX_KERNELS(SN_TARGET_AVX512, _avx512)
#endif
