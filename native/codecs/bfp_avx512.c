/* Codec 3 with AVX-512, bit for bit as bfp.c, which explains the arithmetic and handles incomplete blocks and those
   whose exponent is out of the range of floats. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX512
#include "codecs/lanes_avx512.h"

enum { BLOCK_WORDS = SN_CODING_BLOCK_WORDS };

SN_INLINE_AVX512 uint32_t shared_exponent(__m512i words)
{
    return (uint32_t)_mm512_reduce_max_epi32(sn_magnitudes_16(words)) >> 23;
}

/* Returns whether floats quantise a block of this exponent: all but the smallest and the largest. */
static inline int is_usual(uint32_t shared, int m)
{
    return shared - (uint32_t)m - 1 < 230; /* m < shared <= 230 + m */
}

/* Returns the magnitudes of a usual block as multiples of its step. */
SN_INLINE_AVX512 __m512i quantise(__m512i words, uint32_t shared, int m)
{
    const __m512i origin = _mm512_set1_epi32((int32_t)(shared + 24 - (uint32_t)m) << 23);
    const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(sn_magnitudes_16(words)), _mm512_castsi512_ps(origin));
    const __m512i q = _mm512_sub_epi32(_mm512_castps_si512(sum), origin);
    return _mm512_min_epi32(q, _mm512_set1_epi32((1 << m) - 1));
}

/* Returns the words of multiples with the signs of `signs`. Zero is +0.0. */
SN_INLINE_AVX512 __m512i restore(__m512i q, __m512i signs, uint32_t shared, int m)
{
    const __m512i step = _mm512_set1_epi32((int32_t)(shared - (uint32_t)m + 1) << 23);
    const __m512 magnitude = _mm512_mul_ps(_mm512_cvtepi32_ps(q), _mm512_castsi512_ps(step));
    const __m512i words = sn_with_signs(_mm512_castps_si512(magnitude), signs);
    return _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(q, q), words);
}

/* Encodes a block; may touch SN_CODING_BLOCK_BOUND bytes. Returns its end. */
SN_INLINE_AVX512 uint8_t *put_block(uint8_t *out, int m, __m512i words, sn_row row)
{
    const uint32_t shared = shared_exponent(words);
    if (is_usual(shared, m)) {
        const __m512i q = quantise(words, shared, m);
        const __m512i sign = _mm512_sll_epi32(_mm512_srli_epi32(words, 31), _mm_cvtsi32_si128(m));
        *out = (uint8_t)shared;
        sn_store_row_16(out + 1, _mm512_mask_or_epi32(q, _mm512_test_epi32_mask(q, q), q, sign), row);
        return out + 1 + 2 * (m + 1);
    }
    if (shared == 0) {
        *out = 0;
        return out + 1;
    }
    uint8_t block[4 * BLOCK_WORDS];
    size_t consumed;
    _mm512_storeu_si512(block, words);
    return out + sn_bfp_encode(m, block, BLOCK_WORDS, BLOCK_WORDS, out, SN_CODING_BLOCK_BOUND, &consumed);
}

SN_INLINE_AVX512 void encode_coding_block(sn_writer *writer, int m, const uint8_t *words, unsigned count)
{
    writer->out = put_block(writer->out, m, sn_load_16(words, count), sn_row_of((unsigned)m + 1));
}

SN_INLINE_AVX512 size_t encode(int m, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                               size_t *consumed)
{
    const sn_row row = sn_row_of((unsigned)m + 1);
    sn_progress at = sn_start(out);
    uint8_t *const end = out + capacity;
    for (; count - at.done >= BLOCK_WORDS && end - at.writer.out >= SN_CODING_BLOCK_BOUND; at.done += BLOCK_WORDS) {
        at.before = at.writer;
        at.writer.out = put_block(at.writer.out, m, _mm512_loadu_si512(words + 4 * at.done), row);
    }
    const sn_block_codec codec = {encode_coding_block, m};
    return sn_finish_coding_blocks(codec, at, words, count, first, end, consumed);
}

SN_TARGET_AVX512 size_t sn_bfp_encode_avx512(int m, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                             size_t capacity, size_t *consumed)
{
    if (m == 7)
        return encode(7, words, count, first, out, capacity, consumed);
    if (m == 15)
        return encode(15, words, count, first, out, capacity, consumed);
    return encode(m, words, count, first, out, capacity, consumed);
}

SN_INLINE_AVX512 ptrdiff_t decode(int m, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const sn_row row = sn_row_of((unsigned)m + 1);
    const __m128i above = _mm_cvtsi32_si128(31 - m);
    const uint8_t *in = body, *const end = body + length;
    for (; count >= BLOCK_WORDS && end - in > 2 * (m + 1); count -= BLOCK_WORDS, words += 4 * BLOCK_WORDS) {
        const uint32_t shared = *in;
        if (shared - (uint32_t)m < 255 - (uint32_t)m) { /* m <= shared < 255 */
            const __m512i lanes = sn_load_row_16(in + 1, row);
            const __m512i q = _mm512_and_si512(lanes, _mm512_set1_epi32((1 << m) - 1));
            _mm512_storeu_si512(words, restore(q, _mm512_sll_epi32(lanes, above), shared, m));
            in += 1 + 2 * (m + 1);
        } else if (shared == 0) {
            _mm512_storeu_si512(words, _mm512_setzero_si512());
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

SN_TARGET_AVX512 ptrdiff_t sn_bfp_decode_avx512(int m, const uint8_t *body, size_t length, uint8_t *words,
                                                size_t count)
{
    if (m == 7)
        return decode(7, body, length, words, count);
    if (m == 15)
        return decode(15, body, length, words, count);
    return decode(m, body, length, words, count);
}

SN_TARGET_AVX512 void sn_bfp_roundtrip_avx512(int m, const uint8_t *words, size_t count, uint8_t *out)
{
    for (; count >= BLOCK_WORDS; count -= BLOCK_WORDS) {
        const __m512i lanes = _mm512_loadu_si512(words);
        const uint32_t shared = shared_exponent(lanes);
        if (is_usual(shared, m))
            _mm512_storeu_si512(out, restore(quantise(lanes, shared, m), lanes, shared, m));
        else
            sn_bfp_roundtrip(m, words, BLOCK_WORDS, out);
        words += 4 * BLOCK_WORDS;
        out += 4 * BLOCK_WORDS;
    }
    sn_bfp_roundtrip(m, words, count, out);
}
#endif
