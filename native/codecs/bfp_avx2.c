/* Codec 3 with AVX2, bit for bit as bfp.c, which explains the arithmetic and handles the ends too short for whole
   registers and the blocks whose exponent is out of the range of floats. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
#include "codecs/lanes_avx2.h"

enum { BLOCK_WORDS = SN_CODING_BLOCK_WORDS, EXPONENTS = 255 << 23 };

/* A block: its words, their magnitudes, and the largest magnitude in all lanes. */
typedef struct {
    __m256i words[2];
    __m256i magnitudes[2];
    __m256i greatest;
} block;

SN_INLINE_AVX2 block load_block(const uint8_t *words)
{
    const __m256i low = sn_load_8(words), high = sn_load_8(words + 32);
    block b = {{low, high}, {sn_magnitudes(low), sn_magnitudes(high)}, low};
    __m256i most = _mm256_max_epi32(b.magnitudes[0], b.magnitudes[1]);
    most = _mm256_max_epi32(most, _mm256_permute2x128_si256(most, most, 1));
    most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0x4e));
    b.greatest = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0xb1));
    return b;
}

SN_INLINE_AVX2 uint32_t shared_exponent(const block *b)
{
    return (uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(b->greatest)) >> 23;
}

/* Returns whether floats quantise a block of this exponent: all but the smallest and the largest. */
static inline int is_usual(uint32_t shared, int m)
{
    return shared - (uint32_t)m - 1 < 230; /* m < shared <= 230 + m */
}

/* Returns eight words of a usual block as signed multiples of its step. */
SN_INLINE_AVX2 __m256i quantise(const block *b, unsigned half, int m)
{
    const __m256i origin = _mm256_add_epi32(_mm256_and_si256(b->greatest, _mm256_set1_epi32(EXPONENTS)),
                                            _mm256_set1_epi32((24 - m) << 23));
    const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(b->magnitudes[half]), _mm256_castsi256_ps(origin));
    const __m256i q = _mm256_sub_epi32(_mm256_castps_si256(sum), origin);
    return _mm256_sign_epi32(_mm256_min_epi32(q, _mm256_set1_epi32((1 << m) - 1)), b->words[half]);
}

/* Encodes a block; may touch SN_CODING_BLOCK_BOUND bytes. Returns its end. */
SN_INLINE_AVX2 uint8_t *put_block(uint8_t *out, int m, const uint8_t *words)
{
    const block b = load_block(words);
    const uint32_t shared = shared_exponent(&b);
    if (is_usual(shared, m)) {
        const __m256i q = sn_halve_lanes(quantise(&b, 0, m), quantise(&b, 1, m));
        const __m256i sign = _mm256_slli_epi16(_mm256_srli_epi16(q, 15), m);
        *out = (uint8_t)shared;
        sn_store_row(out + 1, _mm256_or_si256(_mm256_abs_epi16(q), sign), (unsigned)m + 1);
        return out + 1 + 2 * (m + 1);
    }
    if (shared == 0) {
        *out = 0;
        return out + 1;
    }
    size_t consumed;
    return out + sn_bfp_encode(m, words, BLOCK_WORDS, BLOCK_WORDS, out, SN_CODING_BLOCK_BOUND, &consumed);
}

SN_INLINE_AVX2 void encode_coding_block(sn_writer *writer, int m, const uint8_t *words, unsigned count)
{
    uint8_t whole[4 * BLOCK_WORDS];
    if (count < BLOCK_WORDS) {
        memset(whole, 0, sizeof whole);
        memcpy(whole, words, 4 * (size_t)count);
        words = whole;
    }
    writer->out = put_block(writer->out, m, words);
}

SN_INLINE_AVX2 size_t encode(int m, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                             size_t *consumed)
{
    sn_progress at = sn_start(out);
    uint8_t *const end = out + capacity;
    while (count - at.done >= BLOCK_WORDS && end - at.writer.out >= SN_CODING_BLOCK_BOUND) {
        at.before = at.writer;
        at.writer.out = put_block(at.writer.out, m, words + 4 * at.done);
        at.done += BLOCK_WORDS;
    }
    const sn_block_codec codec = {encode_coding_block, m};
    return sn_finish_coding_blocks(codec, at, words, count, first, end, consumed);
}

SN_TARGET_AVX2 size_t sn_bfp_encode_avx2(int m, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                         size_t capacity, size_t *consumed)
{
    if (m == 7)
        return encode(7, words, count, first, out, capacity, consumed);
    if (m == 15)
        return encode(15, words, count, first, out, capacity, consumed);
    return encode(m, words, count, first, out, capacity, consumed);
}

/* Returns eight words of a block. A lane of zero, with or without a sign, is +0.0. */
SN_INLINE_AVX2 __m256i restore(__m256i lanes, int m, __m256 step)
{
    const __m256i q = _mm256_and_si256(lanes, _mm256_set1_epi32((1 << m) - 1));
    const __m256i sign = _mm256_sll_epi32(lanes, sn_count(31 - m));
    return _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sign_epi32(q, sign)), step));
}

SN_INLINE_AVX2 __m256 step_of(uint32_t shared, int m)
{
    return _mm256_castsi256_ps(_mm256_set1_epi32((int32_t)((shared - (uint32_t)m + 1) << 23)));
}

SN_INLINE_AVX2 ptrdiff_t decode(int m, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const uint8_t *in = body, *const end = body + length;
    for (; count >= BLOCK_WORDS && end - in > SN_ROW_BOUND; count -= BLOCK_WORDS, words += 4 * BLOCK_WORDS) {
        const uint32_t shared = *in;
        if (shared - (uint32_t)m < 255 - (uint32_t)m) { /* m <= shared < 255 */
            const __m256 step = step_of(shared, m);
            sn_store_8(words, restore(sn_load_lanes(in + 1, (unsigned)m + 1), m, step));
            sn_store_8(words + 32, restore(sn_load_lanes(in + 2 + m, (unsigned)m + 1), m, step));
            in += 1 + 2 * (m + 1);
        } else if (shared == 0) {
            sn_store_8(words, _mm256_setzero_si256());
            sn_store_8(words + 32, _mm256_setzero_si256());
            in++;
        } else {
            const ptrdiff_t size = sn_bfp_decode(m, in, (size_t)(end - in), words, BLOCK_WORDS);
            if (size < 0)
                return -1;
            in += size;
        }
    }
    const ptrdiff_t rest = sn_bfp_decode(m, in, (size_t)(end - in), words, count);
    return rest < 0 ? -1 : in - body + rest;
}

SN_TARGET_AVX2 ptrdiff_t sn_bfp_decode_avx2(int m, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    if (m == 7)
        return decode(7, body, length, words, count);
    if (m == 15)
        return decode(15, body, length, words, count);
    return decode(m, body, length, words, count);
}

SN_TARGET_AVX2 void sn_bfp_roundtrip_avx2(int m, const uint8_t *words, size_t count, uint8_t *out)
{
    for (; count >= BLOCK_WORDS; count -= BLOCK_WORDS) {
        const block b = load_block(words);
        const uint32_t shared = shared_exponent(&b);
        if (is_usual(shared, m)) {
            const __m256 step = step_of(shared, m);
            for (unsigned half = 0; half < 2; half++) {
                const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(quantise(&b, half, m)), step);
                sn_store_8(out + 32 * half, _mm256_castps_si256(value));
            }
        } else {
            sn_bfp_roundtrip(m, words, BLOCK_WORDS, out);
        }
        words += 4 * BLOCK_WORDS;
        out += 4 * BLOCK_WORDS;
    }
    sn_bfp_roundtrip(m, words, count, out);
}
#endif
