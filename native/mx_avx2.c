/* Codec 7 with AVX2, bit for bit as mx.c, which handles incomplete blocks and those at the ends of the range of floats.
   Added to a number of 2^23 to 2^24 units of its element, a power of two, a magnitude is rounded to whole units. */
#include "kernels.h"

#ifdef SN_HAVE_AVX2
#include "mx_avx2.h"

/* Conversion of binary16, which has_avx2 in codecs.c looks for too. */
#define TARGET __attribute__((target("avx2,f16c")))
#define INLINE static SN_INLINE TARGET

enum { REGISTERS = 4, EXPONENTS = 255 << 23 };

typedef struct {
    __m256i words[REGISTERS];
    __m256i magnitudes[REGISTERS];
    uint32_t greatest; /* magnitude */
    __m256i exponent;  /* of it, in place; a usual one for zeros */
} block;

INLINE block load_block(const uint8_t *words)
{
    block b;
    for (unsigned i = 0; i < REGISTERS; i++) {
        b.words[i] = sn_load_8(words + 32 * i);
        b.magnitudes[i] = sn_magnitudes(b.words[i]);
    }
    const __m256i most = sn_mx_greatest(_mm256_max_epi32(_mm256_max_epi32(b.magnitudes[0], b.magnitudes[1]),
                                                         _mm256_max_epi32(b.magnitudes[2], b.magnitudes[3])));
    b.greatest = (uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(most));
    b.exponent = _mm256_max_epi32(_mm256_and_si256(most, _mm256_set1_epi32(EXPONENTS)),
                                  _mm256_set1_epi32(SN_MX_LEAST_USUAL << 23));
    return b;
}

/* What does not vary within a block: the exponent of the smallest normal element, in place, and what makes an origin
   (below) of an exponent and the magnitude of an element of this exponent. */
typedef struct {
    __m256i least;
    __m256i base;
} limits;

INLINE limits limits_of(sn_mx_format f, const block *b)
{
    const __m256i least = _mm256_sub_epi32(b->exponent, _mm256_set1_epi32(sn_mx_exponents(f) << 23));
    const __m256i units = _mm256_set1_epi32((int32_t)(23 - f.mantissa) << 23);
    return (limits){least, _mm256_sub_epi32(units, _mm256_srli_epi32(least, (int)(23 - f.mantissa)))};
}

/* Returns 2^23 units of each magnitude's element, and as many more as are below its exponent: added to the magnitude,
   the sum's low bits are the element. */
INLINE __m256i origins_of(sn_mx_format f, __m256i magnitudes, limits l)
{
    const __m256i own = _mm256_and_si256(magnitudes, _mm256_set1_epi32(EXPONENTS));
    const __m256i exponents = _mm256_max_epi32(own, l.least);
    const __m256i below = _mm256_srli_epi32(exponents, (int)(23 - f.mantissa));
    return _mm256_add_epi32(_mm256_add_epi32(exponents, below), l.base);
}

INLINE __m256 sum_of(__m256i magnitudes, __m256i origins)
{
    return _mm256_add_ps(_mm256_castsi256_ps(magnitudes), _mm256_castsi256_ps(origins));
}

/* Returns 32 numbers of 32 bits as bytes, by signed saturation and then that of `pack`, in the order of `bytes_in_order`. */
#define PACKED(pack, of) pack(_mm256_packs_epi32((of)[0], (of)[1]), _mm256_packs_epi32((of)[2], (of)[3]))

INLINE void put(uint8_t *out, int parameter, const uint8_t *words)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const block b = load_block(words);
    if (!sn_mx_is_usual(b.greatest)) {
        sn_mx_put(out, parameter, words, SN_MX_BLOCK_WORDS);
        return;
    }
    const __m256i tops = PACKED(_mm256_packs_epi16, b.words); /* now: registers are few */
    const limits l = limits_of(f, &b);
    __m256i codes[REGISTERS];
    for (unsigned i = 0; i < REGISTERS; i++) {
        const __m256 sum = sum_of(b.magnitudes[i], origins_of(f, b.magnitudes[i], l));
        codes[i] = _mm256_and_si256(_mm256_castps_si256(sum), _mm256_set1_epi32(0xff));
    }
    const __m256i elements = sn_mx_elements(f, PACKED(_mm256_packus_epi16, codes), tops);
    *out = sn_mx_scale(f, b.greatest);
    sn_mx_store_row(out + 1, f, _mm256_permutevar8x32_epi32(elements, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

/* Stores the words of sixteen elements. */
INLINE void store_words(uint8_t *words, sn_mx_format f, __m128i elements, __m256 factor)
{
    const __m256i lanes = _mm256_cvtepu8_epi16(elements);
    const __m256i signs = _mm256_and_si256(_mm256_slli_epi16(lanes, (int)(16 - f.bits)),
                                           _mm256_set1_epi16((short)SN_MX_HALF_SIGN));
    const __m256i magnitudes = _mm256_and_si256(_mm256_slli_epi16(lanes, (int)(SN_MX_HALF_FRACTION - f.mantissa)),
                                                _mm256_set1_epi16((short)sn_mx_half_magnitude(f)));
    const __m256i halves = _mm256_or_si256(signs, magnitudes);
    const __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    const __m256 high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    sn_store_8(words, _mm256_castps_si256(_mm256_mul_ps(low, factor)));
    sn_store_8(words + 32, _mm256_castps_si256(_mm256_mul_ps(high, factor)));
}

INLINE void take(const uint8_t *in, int parameter, uint8_t *words)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const __m256i elements = sn_mx_load_row(in + 1, f);
    if (!sn_mx_are_products(f, *in, elements)) {
        sn_mx_take(in, parameter, words, SN_MX_BLOCK_WORDS);
        return;
    }
    const __m256 factor = _mm256_set1_ps(sn_mx_factor(f, *in));
    store_words(words, f, _mm256_castsi256_si128(elements), factor);
    store_words(words + 64, f, _mm256_extracti128_si256(elements, 1), factor);
}

INLINE void round_block(int parameter, const uint8_t *words, uint8_t *out)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const block b = load_block(words);
    if (!sn_mx_is_usual(b.greatest)) {
        sn_mx_round(parameter, words, out, SN_MX_BLOCK_WORDS);
        return;
    }
    const uint32_t fraction = (f.most & ((1u << f.mantissa) - 1)) << (23 - f.mantissa);
    const limits l = limits_of(f, &b);
    const __m256i most = _mm256_or_si256(b.exponent, _mm256_set1_epi32((int32_t)fraction));
    for (unsigned i = 0; i < REGISTERS; i++) {
        const __m256i origins = origins_of(f, b.magnitudes[i], l);
        const __m256 sum = sum_of(b.magnitudes[i], origins);
        const __m256i rounded = _mm256_castps_si256(_mm256_sub_ps(sum, _mm256_castsi256_ps(origins)));
        const __m256i signs = _mm256_and_si256(b.words[i], _mm256_set1_epi32((int32_t)0x80000000));
        sn_store_8(out + 32 * i, _mm256_or_si256(_mm256_min_epi32(rounded, most), signs));
    }
}

SN_MX_KERNELS(TARGET, _avx2)
#endif
