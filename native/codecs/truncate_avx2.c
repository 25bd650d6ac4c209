/* Codec 4 with AVX2, bit for bit as truncate.c, which handles the ends too short for whole registers, and all of the
   uncommon widths (17 to 23 and 25 to 31 bits). */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
#include "codecs/lanes_avx2.h"

/* Bytes that decoding a row may touch: a row of 24 bits most. Encoding one touches less than three rows. */
enum { ROW_BOUND = 56 };

static inline int is_quick(int bits) { return bits <= SN_WIDEST_ROW || bits == 24; }

/* Returns the three upper bytes of each of four words, adjacent. */
SN_INLINE_AVX2 __m128i upper_bytes(const uint8_t *words)
{
    return _mm_shuffle_epi8(sn_load_quad(words), _mm_setr_epi8(1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, -1, -1, -1,
                                                               -1));
}

/* Encodes a coding block. */
SN_INLINE_AVX2 void put_row(uint8_t *out, int bits, const uint8_t *words)
{
    if (bits == 24) {
        for (unsigned i = 0; i < 4; i++)
            _mm_storeu_si128((__m128i *)(out + 12 * i), upper_bytes(words + 16 * i));
    } else {
        const __m128i drop = sn_count(32 - bits);
        const __m256i low = _mm256_srl_epi32(sn_load_8(words), drop), high = _mm256_srl_epi32(sn_load_8(words + 32),
                                                                                              drop);
        sn_store_row(out, _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8), (unsigned)bits);
    }
}

/* Decodes a coding block. */
SN_INLINE_AVX2 void take_row(const uint8_t *in, int bits, uint8_t *words)
{
    if (bits == 24) {
        const __m256i bytes = _mm256_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 0, 1, 2, -1,
                                               3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11);
        sn_store_8(words, _mm256_shuffle_epi8(sn_load_two_quads(in, in + 12), bytes));
        sn_store_8(words + 32, _mm256_shuffle_epi8(sn_load_two_quads(in + 24, in + 36), bytes));
    } else {
        const __m128i drop = sn_count(32 - bits);
        sn_store_8(words, _mm256_sll_epi32(sn_load_lanes(in, (unsigned)bits), drop));
        sn_store_8(words + 32, _mm256_sll_epi32(sn_load_lanes(in + bits, (unsigned)bits), drop));
    }
}

SN_INLINE_AVX2 void encode_coding_block(sn_writer *writer, int bits, const uint8_t *words, unsigned count)
{
    uint8_t whole[4 * SN_CODING_BLOCK_WORDS];
    if (count < SN_CODING_BLOCK_WORDS) {
        memset(whole, 0, sizeof whole);
        memcpy(whole, words, 4 * (size_t)count);
        words = whole;
    }
    put_row(writer->out, bits, words);
    writer->out += count > SN_LANES ? 2 * bits : bits;
}

SN_INLINE_AVX2 size_t encode(int bits, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                             size_t *consumed)
{
    const size_t row = 2 * (size_t)bits, space = capacity / row < 2 ? 0 : capacity / row - 2;
    const size_t rows = count / SN_CODING_BLOCK_WORDS < space ? count / SN_CODING_BLOCK_WORDS : space; /* two more fit behind the last */
    sn_progress at = sn_start(out);
    for (size_t i = 0; i < rows; i++)
        put_row(out + row * i, bits, words + 4 * SN_CODING_BLOCK_WORDS * i);
    if (rows) {
        at.writer.out = out + row * rows;
        at.before.out = out + row * (rows - 1);
        at.done = SN_CODING_BLOCK_WORDS * rows;
    }
    const sn_block_codec codec = {encode_coding_block, bits};
    return sn_finish_coding_blocks(codec, at, words, count, first, out + capacity, consumed);
}

SN_TARGET_AVX2 size_t sn_truncate_encode_avx2(int bits, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                              size_t capacity, size_t *consumed)
{
    if (bits == 16)
        return encode(16, words, count, first, out, capacity, consumed);
    if (bits == 8)
        return encode(8, words, count, first, out, capacity, consumed);
    if (bits == 24)
        return encode(24, words, count, first, out, capacity, consumed);
    if (is_quick(bits))
        return encode(bits, words, count, first, out, capacity, consumed);
    return sn_truncate_encode(bits, words, count, first, out, capacity, consumed);
}

SN_INLINE_AVX2 ptrdiff_t decode(int bits, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const uint8_t *in = body, *const end = body + length;
    while (count >= SN_CODING_BLOCK_WORDS && end - in >= ROW_BOUND) {
        take_row(in, bits, words);
        in += 2 * bits;
        words += 4 * SN_CODING_BLOCK_WORDS;
        count -= SN_CODING_BLOCK_WORDS;
    }
    const ptrdiff_t rest = sn_truncate_decode(bits, in, (size_t)(end - in), words, count);
    return rest < 0 ? -1 : in - body + rest;
}

SN_TARGET_AVX2 ptrdiff_t sn_truncate_decode_avx2(int bits, const uint8_t *body, size_t length, uint8_t *words,
                                                 size_t count)
{
    if (bits == 16)
        return decode(16, body, length, words, count);
    if (bits == 8)
        return decode(8, body, length, words, count);
    if (bits == 24)
        return decode(24, body, length, words, count);
    if (is_quick(bits))
        return decode(bits, body, length, words, count);
    return sn_truncate_decode(bits, body, length, words, count);
}

SN_TARGET_AVX2 void sn_truncate_roundtrip_avx2(int bits, const uint8_t *words, size_t count, uint8_t *out)
{
    const __m256i mask = _mm256_set1_epi32((int32_t)(0xffffffffu << (32 - bits)));
    for (; count >= SN_LANES; count -= SN_LANES) {
        sn_store_8(out, _mm256_and_si256(sn_load_8(words), mask));
        words += 4 * SN_LANES;
        out += 4 * SN_LANES;
    }
    sn_truncate_roundtrip(bits, words, count, out);
}
#endif
