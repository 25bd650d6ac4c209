/* Codec 4 with AVX-512, bit for bit as truncate.c, which handles incomplete coding blocks and more than 24 bits. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX512
#include "codecs/lanes_avx512.h"

SN_INLINE_AVX512 __m512i truncated(__m512i words, int bits)
{
    return _mm512_srl_epi32(words, _mm_cvtsi32_si128(32 - bits));
}

SN_INLINE_AVX512 void encode_coding_block(sn_writer *writer, int bits, const uint8_t *words, unsigned count)
{
    const __m512i lanes = truncated(sn_load_16(words, count), bits);
    sn_store_row_16(writer->out, lanes, sn_row_of((unsigned)bits));
    writer->out += count > SN_LANES ? 2 * bits : bits;
}

SN_INLINE_AVX512 size_t encode(int bits, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                               size_t capacity, size_t *consumed)
{
    const sn_row row = sn_row_of((unsigned)bits);
    sn_progress at = sn_start(out);
    uint8_t *const end = out + capacity;
    for (; count - at.done >= SN_CODING_BLOCK_WORDS && end - at.writer.out >= SN_CODING_BLOCK_BOUND; at.done += SN_CODING_BLOCK_WORDS) {
        at.before = at.writer;
        sn_store_row_16(at.writer.out, truncated(_mm512_loadu_si512(words + 4 * at.done), bits), row);
        at.writer.out += 2 * bits;
    }
    const sn_block_codec codec = {encode_coding_block, bits};
    return sn_finish_coding_blocks(codec, at, words, count, first, end, consumed);
}

SN_TARGET_AVX512 size_t sn_truncate_encode_avx512(int bits, const uint8_t *words, size_t count, size_t first,
                                                  uint8_t *out, size_t capacity, size_t *consumed)
{
    if (bits == 8)
        return encode(8, words, count, first, out, capacity, consumed);
    if (bits == 16)
        return encode(16, words, count, first, out, capacity, consumed);
    if (bits <= SN_WIDEST_ROW_AVX512)
        return encode(bits, words, count, first, out, capacity, consumed);
    return sn_truncate_encode(bits, words, count, first, out, capacity, consumed);
}

SN_INLINE_AVX512 ptrdiff_t decode(int bits, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const sn_row row = sn_row_of((unsigned)bits);
    const __m128i drop = _mm_cvtsi32_si128(32 - bits);
    const uint8_t *in = body, *const end = body + length;
    for (; count >= SN_CODING_BLOCK_WORDS && end - in >= 2 * bits; count -= SN_CODING_BLOCK_WORDS,
         words += 4 * SN_CODING_BLOCK_WORDS) {
        _mm512_storeu_si512(words, _mm512_sll_epi32(sn_load_row_16(in, row), drop));
        in += 2 * bits;
    }
    const ptrdiff_t rest = sn_truncate_decode(bits, in, (size_t)(end - in), words, count);
    return rest < 0 ? -1 : in - body + rest;
}

SN_TARGET_AVX512 ptrdiff_t sn_truncate_decode_avx512(int bits, const uint8_t *body, size_t length, uint8_t *words,
                                                     size_t count)
{
    if (bits == 8)
        return decode(8, body, length, words, count);
    if (bits == 16)
        return decode(16, body, length, words, count);
    if (bits <= SN_WIDEST_ROW_AVX512)
        return decode(bits, body, length, words, count);
    return sn_truncate_decode(bits, body, length, words, count);
}

SN_TARGET_AVX512 void sn_truncate_roundtrip_avx512(int bits, const uint8_t *words, size_t count, uint8_t *out)
{
    const __m512i kept = _mm512_set1_epi32((int32_t)(0xffffffffu << (32 - bits)));
    for (; count >= SN_CODING_BLOCK_WORDS; count -= SN_CODING_BLOCK_WORDS) {
        _mm512_storeu_si512(out, _mm512_and_si512(_mm512_loadu_si512(words), kept));
        words += 4 * SN_CODING_BLOCK_WORDS;
        out += 4 * SN_CODING_BLOCK_WORDS;
    }
    sn_truncate_roundtrip(bits, words, count, out);
}
#endif
