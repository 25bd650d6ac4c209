/* Codec 5 with AVX2, bit for bit as rht.c. A block does not fit into the registers beside what it is combined with, so
   its transform passes twice over 512 bytes in the first-level cache, by fours of registers. Multiplications by one and
   minus one are exact, so they are fused with an addition. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
#include <immintrin.h>

#define SN_TARGET_AVX2 __attribute__((target("avx2,fma")))
#include "codecs/bursts_avx2.h"
#include "codecs/rht.h"

enum { REGISTERS = 16, LANES = 8, MOST_TABLES = SN_RHT_MOST_LEVELS / LANES, MOST_STEPS = 5 };

#define SN_FOUR _Pragma("GCC unroll 4")

typedef struct {
    __m256 of[REGISTERS];
} block;

SN_INLINE_AVX2 __m256 bits(__m256i x) { return _mm256_castsi256_ps(x); }

/* Additions of lanes at distances 1, 2 and 4 of a register. */
SN_INLINE_AVX2 __m256 add_within(__m256 x)
{
    x = _mm256_fmadd_ps(x, _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1), _mm256_permute_ps(x, 0xb1));
    x = _mm256_fmadd_ps(x, _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1), _mm256_permute_ps(x, 0x4e));
    return _mm256_fmadd_ps(x, _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1), _mm256_permute2f128_ps(x, x, 1));
}

/* Additions of four registers at distances 1 and 2. */
SN_INLINE_AVX2 void add_four(__m256 *of)
{
    const __m256 a = _mm256_add_ps(of[0], of[1]), b = _mm256_sub_ps(of[0], of[1]);
    const __m256 x = _mm256_add_ps(of[2], of[3]), y = _mm256_sub_ps(of[2], of[3]);
    of[0] = _mm256_add_ps(a, x);
    of[1] = _mm256_add_ps(b, y);
    of[2] = _mm256_sub_ps(a, x);
    of[3] = _mm256_sub_ps(b, y);
}

/* The first five steps of the transform, of four registers. */
SN_INLINE_AVX2 void add_near(__m256 *four)
{
    SN_FOUR
    for (unsigned j = 0; j < 4; j++)
        four[j] = add_within(four[j]);
    add_four(four);
}

/* The last two, of registers i, i + 4, i + 8 and i + 12. */
SN_INLINE_AVX2 void add_far(const block *b, unsigned i, __m256 *four)
{
    SN_FOUR
    for (unsigned j = 0; j < 4; j++)
        four[j] = b->of[i + 4 * j];
    add_four(four);
}

SN_INLINE_AVX2 __m256 flipped(__m256 x, unsigned i)
{
    return _mm256_xor_ps(x, bits(sn_load_8((const uint8_t *)(sn_rht_signs + LANES * i))));
}

SN_INLINE_AVX2 uint32_t greatest_of(__m256i lanes)
{
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1)));
}

/* Loads a block and computes its coefficients; adding zero removes the sign of zeros. Returns the bits of the largest
   magnitude; those of a NaN if any word is one, because each coefficient is made of all words. Not fused: an eighth of
   a denormal may be a zero with a sign. */
SN_INLINE_AVX2 uint32_t load_coefficients(const uint8_t *words, block *b)
{
    __m256i most = _mm256_setzero_si256();
    __m256 four[4];
    for (unsigned i = 0; i < REGISTERS; i += 4) {
        SN_FOUR
        for (unsigned j = 0; j < 4; j++)
            four[j] = flipped(bits(sn_load_8(words + 4 * LANES * (i + j))), i + j);
        add_near(four);
        SN_FOUR
        for (unsigned j = 0; j < 4; j++)
            b->of[i + j] = four[j];
    }
    for (unsigned i = 0; i < 4; i++) {
        add_far(b, i, four);
        SN_FOUR
        for (unsigned j = 0; j < 4; j++) {
            const __m256 x = _mm256_add_ps(_mm256_mul_ps(four[j], _mm256_set1_ps(0x1p-3f)), _mm256_setzero_ps());
            b->of[i + 4 * j] = x;
            most = _mm256_max_epi32(most, sn_magnitudes(_mm256_castps_si256(x)));
        }
    }
    return greatest_of(most);
}

/* Thresholds times a scale, for each step of a binary search; the fifth has sixteen. Less one as integers, because
   magnitudes are compared as such, which takes a third of the time. */
typedef struct {
    __m256i below[MOST_STEPS + 1];
} search;

SN_INLINE_AVX2 __m256i below(const float *thresholds, float s)
{
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(thresholds), _mm256_set1_ps(s));
    return _mm256_sub_epi32(_mm256_castps_si256(scaled), _mm256_set1_epi32(1));
}

SN_INLINE_AVX2 search search_of(int b, float s)
{
    const float *const from = sn_rht_searches[b - SN_RHT_FEWEST_BITS];
    search found;
    found.below[0] = _mm256_broadcastd_epi32(_mm256_castsi256_si128(below(from + 1, s)));
    SN_FOUR
    for (int n = 1; n < b - 1; n++)
        found.below[n] = below(from + (1 << n), s);
    if (b == 6)
        found.below[MOST_STEPS] = below(from + 16 + LANES, s);
    return found;
}

/* Returns the codes of coefficients: index, and sign above it. */
SN_INLINE_AVX2 __m256i codes_of(__m256 x, const search *by, int b)
{
    const __m256i size = sn_magnitudes(_mm256_castps_si256(x));
    __m256i index = _mm256_srli_epi32(_mm256_cmpgt_epi32(size, by->below[0]), 31);
    SN_FOUR
    for (int n = 1; n < b - 1; n++) {
        __m256i below = _mm256_permutevar8x32_epi32(by->below[n], index);
        if (n == 4)
            below = _mm256_castps_si256(
                _mm256_blendv_ps(bits(below), bits(_mm256_permutevar8x32_epi32(by->below[n + 1], index)),
                                 bits(_mm256_slli_epi32(index, 28))));
        index = _mm256_sub_epi32(_mm256_add_epi32(index, index), _mm256_cmpgt_epi32(size, below));
    }
    const __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(x), 31);
    return _mm256_or_si256(index, _mm256_sll_epi32(sign, _mm_cvtsi32_si128(b - 1)));
}

/* Levels times a scale, eight a register. */
typedef struct {
    __m256 of[MOST_TABLES];
} levels;

SN_INLINE_AVX2 levels levels_of(int b, float s)
{
    levels found;
    for (unsigned i = 0; i < MOST_TABLES; i++)
        found.of[i] = _mm256_mul_ps(_mm256_loadu_ps(sn_rht_levels[b - SN_RHT_FEWEST_BITS] + LANES * i),
                                    _mm256_set1_ps(s));
    return found;
}

/* Returns the coefficients of codes, without anything in the bits above. */
SN_INLINE_AVX2 __m256 values_of(__m256i codes, const levels *from, int b)
{
    const __m256i sign = _mm256_slli_epi32(_mm256_srl_epi32(codes, _mm_cvtsi32_si128(b - 1)), 31);
    const __m256i index = b == 3 ? _mm256_and_si256(codes, _mm256_set1_epi32(3)) : codes; /* else low bits are used */
    __m256 size = _mm256_permutevar8x32_ps(from->of[0], index);
    if (b >= 5) {
        const __m256 eights = bits(_mm256_slli_epi32(codes, 28)), sixteens = bits(_mm256_slli_epi32(codes, 27));
        size = _mm256_blendv_ps(size, _mm256_permutevar8x32_ps(from->of[1], index), eights);
        if (b == 6) {
            const __m256 low = _mm256_permutevar8x32_ps(from->of[2], index);
            const __m256 high = _mm256_permutevar8x32_ps(from->of[3], index);
            size = _mm256_blendv_ps(size, _mm256_blendv_ps(low, high, eights), sixteens);
        }
    }
    return _mm256_xor_ps(size, bits(sign));
}

/* Transforms a block whose first five steps are done. */
SN_INLINE_AVX2 void store_words(const block *b, uint8_t *words)
{
    __m256 four[4];
    for (unsigned i = 0; i < 4; i++) {
        add_far(b, i, four);
        SN_FOUR
        for (unsigned j = 0; j < 4; j++) {
            const __m256 x = flipped(_mm256_mul_ps(four[j], _mm256_set1_ps(0x1p-4f)), i + 4 * j);
            sn_store_8(words + 4 * LANES * (i + 4 * j), _mm256_castps_si256(x));
        }
    }
}

/* Packs 32 codes, from four registers, to 4 b bytes; may touch 4 more. */
SN_INLINE_AVX2 void pack(uint8_t *out, const __m256i *codes, int b)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i low = _mm256_packus_epi32(codes[0], codes[1]), high = _mm256_packus_epi32(codes[2], codes[3]);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
    const __m256i twos = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16((int16_t)(1 | 1 << (8 + b))));
    const __m256i fours = _mm256_madd_epi16(twos, _mm256_set1_epi32(1 | 1 << (16 + 2 * b)));
    const __m256i first = _mm256_set1_epi64x((1 << 4 * b) - 1);
    const __m256i upper = _mm256_andnot_si256(first, _mm256_srl_epi64(fours, _mm_cvtsi32_si128(32 - 4 * b)));
    const __m256i eights = _mm256_or_si256(upper, _mm256_and_si256(fours, first));
    sn_store64(out, (uint64_t)_mm256_extract_epi64(eights, 0));
    sn_store64(out + b, (uint64_t)_mm256_extract_epi64(eights, 1));
    sn_store64(out + 2 * b, (uint64_t)_mm256_extract_epi64(eights, 2));
    sn_store64(out + 3 * b, (uint64_t)_mm256_extract_epi64(eights, 3));
}

SN_INLINE_AVX2 void put_codes(uint8_t *out, int b, const block *x, float s)
{
    const search by = search_of(b, s);
    for (unsigned i = 0; i < REGISTERS; i += 4, out += 4 * b) {
        __m256i codes[4];
        SN_FOUR
        for (unsigned j = 0; j < 4; j++)
            codes[j] = codes_of(x->of[i + j], &by, b);
        pack(out, codes, b);
    }
}

/* Returns eight codes; touches 8 bytes. */
SN_INLINE_AVX2 __m256i unpacked(const uint8_t *in, int b)
{
    const __m256i mask = _mm256_set1_epi32((1 << b) - 1);
    if (b <= 4) {
        const __m256i shifts = _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b);
        return _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int32_t)sn_load32(in)), shifts), mask);
    }
    const __m256i halves = _mm256_srlv_epi64(_mm256_set1_epi64x((int64_t)sn_load64(in)),
                                             _mm256_setr_epi64x(0, 0, 4 * b, 4 * b));
    const __m256i lanes = _mm256_shuffle_epi32(halves, 0);
    return _mm256_and_si256(_mm256_srlv_epi32(lanes, _mm256_setr_epi32(0, b, 2 * b, 3 * b, 0, b, 2 * b, 3 * b)), mask);
}

/* Touches 8 bytes behind the codes. */
SN_INLINE_AVX2 void restore(const uint8_t *in, int b, float s, uint8_t *words)
{
    const levels from = levels_of(b, s);
    block x;
    for (unsigned i = 0; i < REGISTERS; i += 4) {
        SN_FOUR
        for (unsigned j = 0; j < 4; j++)
            x.of[i + j] = values_of(unpacked(in + b * (i + j), b), &from, b);
        add_near(x.of + i);
    }
    store_words(&x, words);
}

SN_INLINE_AVX2 void take_codes(const uint8_t *in, const uint8_t *end, int b, float s, uint8_t *words)
{
    enum { MOST = SN_RHT_BLOCK_WORDS * 6 / 8, BEHIND = 8 };
    if (end - in >= 16 * b + BEHIND) {
        restore(in, b, s, words);
    } else {
        uint8_t copy[MOST + BEHIND] = {0};
        memcpy(copy, in, (size_t)(16 * b));
        restore(copy, b, s, words);
    }
}

SN_INLINE_AVX2 void round_codes(int b, block *x, float s, uint8_t *words)
{
    const search by = search_of(b, s);
    const levels from = levels_of(b, s);
    for (unsigned i = 0; i < REGISTERS; i += 4) {
        SN_FOUR
        for (unsigned j = 0; j < 4; j++)
            x->of[i + j] = values_of(codes_of(x->of[i + j], &by, b), &from, b);
        add_near(x->of + i);
    }
    store_words(x, words);
}

#define SN_RHT_INLINE SN_INLINE_AVX2
#define SN_RHT_TARGET SN_TARGET_AVX2
#define SN_RHT_NAME(kernel) sn_rht_##kernel##_avx2
#include "codecs/rht_widths.h"
#endif
