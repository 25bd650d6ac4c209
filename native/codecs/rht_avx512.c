/* Codec 5 with AVX-512, bit for bit as rht.c. A block is in eight registers throughout. Multiplications by one and
   minus one are exact, so they are fused with an addition. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX512
#include "codecs/bursts_avx512.h"
#include "codecs/rht.h"

#define SN_EIGHT _Pragma("GCC unroll 8")

enum { REGISTERS = 8, LANES = 16, MOST_STEPS = 5 };

typedef struct {
    __m512 of[REGISTERS];
} block;

/* Additions within registers: lanes at distance h, of which `signs` has 1 in the lower and -1 in the upper. */
#define STAGE(b, swapped, ...) \
    SN_EIGHT \
    for (unsigned i = 0; i < REGISTERS; i++) { \
        const __m512 x = (b)->of[i]; \
        (b)->of[i] = _mm512_fmadd_ps(x, _mm512_setr_ps(__VA_ARGS__), swapped); \
    }

/* Additions of registers at a distance. */
SN_INLINE_AVX512 void add_registers(block *b, unsigned distance)
{
    SN_EIGHT
    for (unsigned i = 0; i < REGISTERS; i++)
        if (!(i & distance)) {
            const __m512 x = b->of[i], y = b->of[i + distance];
            b->of[i] = _mm512_add_ps(x, y);
            b->of[i + distance] = _mm512_sub_ps(x, y);
        }
}

SN_INLINE_AVX512 void transform(block *b)
{
    STAGE(b, _mm512_permute_ps(x, 0xb1), 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1)
    STAGE(b, _mm512_permute_ps(x, 0x4e), 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1)
    STAGE(b, _mm512_shuffle_f32x4(x, x, 0xb1), 1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1)
    STAGE(b, _mm512_shuffle_f32x4(x, x, 0x4e), 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1)
    add_registers(b, 1);
    add_registers(b, 2);
    add_registers(b, 4);
}

SN_INLINE_AVX512 __m512 flipped(__m512 x, unsigned i)
{
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(x), _mm512_loadu_si512(sn_rht_signs + LANES * i)));
}

SN_INLINE_AVX512 __m512i magnitudes(__m512 x)
{
    return sn_magnitudes_16(_mm512_castps_si512(x));
}

/* Loads a block and computes its coefficients; adding zero removes the sign of zeros. Returns the bits of the largest
   magnitude; those of a NaN if any word is one, because each coefficient is made of all words. Not fused: an eighth of
   a denormal may be a zero with a sign. */
SN_INLINE_AVX512 uint32_t load_coefficients(const uint8_t *words, block *b)
{
    __m512i greatest = _mm512_setzero_si512();
    SN_EIGHT
    for (unsigned i = 0; i < REGISTERS; i++)
        b->of[i] = flipped(_mm512_loadu_ps(words + 4 * LANES * i), i);
    transform(b);
    SN_EIGHT
    for (unsigned i = 0; i < REGISTERS; i++) {
        b->of[i] = _mm512_add_ps(_mm512_mul_ps(b->of[i], _mm512_set1_ps(0x1p-3f)), _mm512_setzero_ps());
        greatest = _mm512_max_epi32(greatest, magnitudes(b->of[i]));
    }
    return (uint32_t)_mm512_reduce_max_epi32(greatest);
}

/* Binary search among the thresholds: step n has a threshold for each index found so far. */
typedef struct {
    __m512 threshold[MOST_STEPS];
} search;

/* The threshold of step n, of `steps`, for the index in a lane: the first four steps count bits from 8 down (or the
   highest of fewer), the fifth is for four bits. */
SN_INLINE_AVX512 search search_of(int b, float s)
{
    const int steps = b - 1, kept = steps < 4 ? steps : 4;
    const float *const thresholds = sn_rht_thresholds[b - SN_RHT_FEWEST_BITS];
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    search found;
    SN_EIGHT
    for (int n = 0; n < steps; n++) {
        const int shift = n < kept ? kept - n : 0, half = 1 << (steps - 1 - n);
        const __m512i before = /* the index's first n bits */
            _mm512_and_si512(_mm512_srl_epi32(lane, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32((1 << n) - 1));
        const __m512i at = _mm512_add_epi32(_mm512_sll_epi32(before, _mm_cvtsi32_si128(steps - n)),
                                            _mm512_set1_epi32(half - 1));
        const __m512 low = _mm512_loadu_ps(thresholds), high = _mm512_loadu_ps(thresholds + LANES);
        found.threshold[n] = _mm512_mul_ps(_mm512_permutex2var_ps(low, at, high), _mm512_set1_ps(s));
    }
    return found;
}

/* Returns the codes of coefficients: index, and sign above it. */
SN_INLINE_AVX512 __m512i codes_of(__m512 x, const search *by, int b)
{
    const int steps = b - 1, kept = steps < 4 ? steps : 4;
    const __m512 size = _mm512_castsi512_ps(magnitudes(x));
    uint16_t above = _mm512_cmp_ps_mask(size, by->threshold[0], _CMP_GE_OQ);
    __m512i index = _mm512_maskz_set1_epi32(above, 1 << (kept - 1));
    SN_EIGHT
    for (int n = 1; n < steps; n++) {
        above = _mm512_cmp_ps_mask(size, _mm512_permutexvar_ps(index, by->threshold[n]), _CMP_GE_OQ);
        if (n == 4)
            index = _mm512_add_epi32(index, index);
        index = _mm512_mask_or_epi32(index, above, index, _mm512_set1_epi32(n < 4 ? 1 << (kept - 1 - n) : 1));
    }
    const __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(x), 31);
    return _mm512_or_si512(index, _mm512_sll_epi32(sign, _mm_cvtsi32_si128(steps)));
}

/* Levels times a scale: with signs for all codes of 3 and 4 bits (those of 3 twice), else magnitudes. */
typedef struct {
    __m512 low, high;
} levels;

SN_INLINE_AVX512 levels levels_of(int b, float s)
{
    const float *const of = sn_rht_levels[b - SN_RHT_FEWEST_BITS];
    const __m512 scale = _mm512_set1_ps(s), low = _mm512_mul_ps(_mm512_loadu_ps(of), scale);
    if (b > 4)
        return (levels){low, _mm512_mul_ps(_mm512_loadu_ps(of + LANES), scale)};
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_and_si512(lane, _mm512_set1_epi32((1 << (b - 1)) - 1));
    const __m512i sign = _mm512_slli_epi32(_mm512_srl_epi32(lane, _mm_cvtsi32_si128(b - 1)), 31);
    const __m512 value = _mm512_permutexvar_ps(index, low);
    return (levels){_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(value), sign)), low};
}

/* Returns the coefficients of codes, which may have anything in the bits above. */
SN_INLINE_AVX512 __m512 values_of(__m512i codes, levels of, int b)
{
    if (b <= 4)
        return _mm512_permutexvar_ps(codes, of.low);
    const __m512 size = b == 5 ? _mm512_permutexvar_ps(codes, of.low) : _mm512_permutex2var_ps(of.low, codes, of.high);
    return _mm512_castsi512_ps(
        sn_with_signs(_mm512_castps_si512(size), _mm512_sll_epi32(codes, _mm_cvtsi32_si128(32 - b))));
}

SN_INLINE_AVX512 void store_words(block *b, uint8_t *words)
{
    transform(b);
    SN_EIGHT
    for (unsigned i = 0; i < REGISTERS; i++)
        _mm512_storeu_ps(words + 4 * LANES * i, flipped(_mm512_mul_ps(b->of[i], _mm512_set1_ps(0x1p-4f)), i));
}

/* Packs 64 codes, from four registers, to 8 b bytes; may touch 64. */
SN_INLINE_AVX512 void pack(uint8_t *out, const __m512i *codes, int b)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i low = _mm512_packus_epi32(codes[0], codes[1]), high = _mm512_packus_epi32(codes[2], codes[3]);
    const __m512i bytes = _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
    const __m512i twos = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16((int16_t)(1 | 1 << (8 + b))));
    const __m512i fours = _mm512_madd_epi16(twos, _mm512_set1_epi32(1 | 1 << (16 + 2 * b)));
    const __m512i first = _mm512_set1_epi64((1 << 4 * b) - 1);
    const __m512i upper = _mm512_andnot_si512(first, _mm512_srl_epi64(fours, _mm_cvtsi32_si128(32 - 4 * b)));
    const __m512i eights = _mm512_or_si512(upper, _mm512_and_si512(fours, first));
    const uint64_t kept = ((UINT64_C(1) << b) - 1) * UINT64_C(0x0101010101010101);
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(kept, eights));
}

SN_INLINE_AVX512 void put_codes(uint8_t *out, int b, const block *x, float s)
{
    const search by = search_of(b, s);
    __m512i codes[REGISTERS];
    SN_EIGHT
    for (unsigned i = 0; i < REGISTERS; i++)
        codes[i] = codes_of(x->of[i], &by, b);
    pack(out, codes, b);
    pack(out + 8 * b, codes + 4, b);
}

SN_INLINE_AVX512 void take_codes(const uint8_t *in, const uint8_t *end, int b, float s, uint8_t *words)
{
    const levels of = levels_of(b, s);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i bit = _mm512_mullo_epi32(lane, _mm512_set1_epi32(b));
    const __m512i first = _mm512_mullo_epi32(_mm512_srli_epi32(bit, 3), _mm512_set1_epi32(0x01010101));
    const __m512i bytes = _mm512_add_epi32(first, _mm512_set1_epi32(0x03020100));
    const __m512i above = _mm512_and_si512(bit, _mm512_set1_epi32(7));
    block x;
    (void)end;
    SN_EIGHT
    for (unsigned i = 0; i < REGISTERS; i++, in += 2 * b) {
        const __m512i row = _mm512_maskz_loadu_epi8((UINT64_C(1) << 2 * b) - 1, in);
        x.of[i] = values_of(_mm512_srlv_epi32(_mm512_permutexvar_epi8(bytes, row), above), of, b);
    }
    store_words(&x, words);
}

SN_INLINE_AVX512 void round_codes(int b, block *x, float s, uint8_t *words)
{
    const search by = search_of(b, s);
    const levels of = levels_of(b, s);
    SN_EIGHT
    for (unsigned i = 0; i < REGISTERS; i++)
        x->of[i] = values_of(codes_of(x->of[i], &by, b), of, b);
    store_words(x, words);
}

#define SN_RHT_INLINE SN_INLINE_AVX512
#define SN_RHT_TARGET SN_TARGET_AVX512
#define SN_RHT_NAME(kernel) sn_rht_##kernel##_avx512
#include "codecs/rht_widths.h"
#endif
