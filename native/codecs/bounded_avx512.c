/* Codec 2 with AVX-512, bit for bit as bounded.c, which explains the arithmetic. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX512
#include "codecs/bursts_avx512.h"

static inline float power_of_two(int n)
{
    return sn_float_of((uint32_t)(127 + n) << 23);
}

/* Bits of 2^23, which is added to q. */
enum { ZERO = (127 + 23) << 23 };

/* Returns words as multiples of the step: the vectors are ZERO + q, without signs. `scale` is 2^(k-1). */
SN_INLINE_AVX512 sn_split_16 split(__m512i words, float scale)
{
    const __m512 magnitude = _mm512_castsi512_ps(sn_magnitudes_16(words));
    const __m512 scaled = _mm512_mul_ps(magnitude, _mm512_set1_ps(scale));
    const __m512i q = _mm512_castps_si512(_mm512_add_ps(scaled, _mm512_set1_ps(0x1p23f)));
    return (sn_split_16){q, _mm512_cmpgt_epi32_mask(q, _mm512_set1_epi32(ZERO)),
                         _mm512_cmpgt_epi32_mask(q, _mm512_set1_epi32(ZERO + 127)),
                         _mm512_cmpgt_epi32_mask(q, _mm512_set1_epi32(ZERO + 32767))};
}

/* Adds the two bursts of a coding block to the open group. */
SN_INLINE_AVX512 void put_bursts(sn_writer *writer, int k, __m512i words)
{
    sn_split_16 parts = split(words, power_of_two(k - 1));
    const __m512i of_16 = sn_with_signs(_mm512_slli_epi32(parts.vector, 16), words);
    const __m512i of_8 = _mm512_srli_epi32(sn_with_signs(_mm512_slli_epi32(parts.vector, 24), words), 16);
    parts.vector = _mm512_mask_mov_epi32(_mm512_mask_mov_epi32(of_8, parts.from_16, of_16), parts.is_32, words);
    const sn_packing packing = sn_prepare(parts);
    for (unsigned burst = 0; burst < 2; burst++) {
        const int nonzero = (packing.tags >> 16 * burst & 0xffff) != 0;
        uint8_t *const end = sn_pack_half(writer->out, packing, burst);
        writer->out = nonzero ? end : writer->out;
        writer->group_flags |= (uint32_t)nonzero << writer->group_bursts++;
    }
}

SN_INLINE_AVX512 void encode_coding_block(sn_writer *writer, int k, const uint8_t *words, unsigned count)
{
    if (writer->group_bursts % SN_GROUP_BURSTS == 0)
        sn_open_group(writer);
    put_bursts(writer, k, sn_load_16(words, count));
}

SN_TARGET_AVX512 size_t sn_bounded_encode_avx512(int k, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                                 size_t capacity, size_t *consumed)
{
    const int32_t largest_zero = (127 - k) << 23; /* 2^-k is half a step, which rounds to 0 */
    const sn_group_codec codec = {{encode_coding_block, k}, sn_is_zero_group_16, largest_zero, 1};
    return sn_encode_by_groups(codec, words, count, first, out, capacity, consumed);
}

SN_TARGET_AVX512 ptrdiff_t sn_bounded_decode_avx512(int k, const uint8_t *body, size_t length, uint8_t *words,
                                                    size_t count)
{
    return sn_decode_groups(sn_expand_8_avx512, k, body, length, words, count);
}

SN_TARGET_AVX512 void sn_bounded_roundtrip_avx512(int k, const uint8_t *words, size_t count, uint8_t *out)
{
    const __m512 zero = _mm512_set1_ps(0x1p23f), step = _mm512_set1_ps(power_of_two(1 - k));
    for (; count >= SN_CODING_BLOCK_WORDS; count -= SN_CODING_BLOCK_WORDS) {
        const __m512i lanes = _mm512_loadu_si512(words);
        const sn_split_16 parts = split(lanes, power_of_two(k - 1));
        const __m512 value = _mm512_mul_ps(_mm512_sub_ps(_mm512_castsi512_ps(parts.vector), zero), step);
        const __m512i bits = _mm512_maskz_mov_epi32(parts.from_8, sn_with_signs(_mm512_castps_si512(value), lanes));
        _mm512_storeu_si512(out, _mm512_mask_mov_epi32(bits, parts.is_32, lanes));
        words += 4 * SN_CODING_BLOCK_WORDS;
        out += 4 * SN_CODING_BLOCK_WORDS;
    }
    sn_bounded_roundtrip(k, words, count, out);
}
#endif
