/* Codec 1 with AVX-512, bit for bit as inceptionn.c, with the arithmetic of inceptionn_avx2.c. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX512
#include "codecs/bursts_avx512.h"

/* The largest magnitudes without a vector, of at most 8 bits, of at most 16. */
typedef struct {
    int32_t of_0;
    int32_t of_8;
    int32_t of_16;
} sn_largest;

static inline sn_largest largest_of(int k)
{
    return (sn_largest){((127 - k) << 23) - 1, ((127 - k + (k + 1) / 2) << 23) - 1, (127 << 23) - 1};
}

/* Returns the vectors at the top of their lanes, without signs, of words below one. */
SN_INLINE_AVX512 sn_split_16 split(__m512i words, sn_largest largest)
{
    const __m512i magnitude = sn_magnitudes_16(words);
    const __m512 scaled = _mm512_mul_ps(_mm512_castsi512_ps(magnitude), _mm512_set1_ps(0x1p31f));
    return (sn_split_16){_mm512_cvttps_epi32(scaled),
                         _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(largest.of_0)),
                         _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(largest.of_8)),
                         _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(largest.of_16))};
}

SN_INLINE_AVX512 void encode_coding_block(sn_writer *writer, int k, const uint8_t *words, unsigned count)
{
    const __m512i lanes = sn_load_16(words, count);
    sn_split_16 parts = split(lanes, largest_of(k));
    const __m512i of_16 = sn_with_signs(parts.vector, lanes);
    const __m512i of_8 = _mm512_srli_epi32(of_16, 16);
    parts.vector = _mm512_mask_mov_epi32(_mm512_mask_mov_epi32(of_8, parts.from_16, of_16), parts.is_32, lanes);
    const sn_packing packing = sn_prepare(parts);
    writer->out = sn_pack_half(writer->out, packing, 0);
    if (count > SN_BURST_WORDS)
        writer->out = sn_pack_half(writer->out, packing, 1);
}

SN_TARGET_AVX512 size_t sn_inceptionn_encode_avx512(int k, const uint8_t *words, size_t count, size_t first,
                                                    uint8_t *out, size_t capacity, size_t *consumed)
{
    const sn_group_codec codec = {{encode_coding_block, k}, sn_is_zero_group_16, largest_of(k).of_0, 0};
    return sn_encode_by_groups(codec, words, count, first, out, capacity, consumed);
}

SN_TARGET_AVX512 ptrdiff_t sn_inceptionn_decode_avx512(int k, const uint8_t *body, size_t length, uint8_t *words,
                                                       size_t count)
{
    return sn_decode_bursts(sn_expand_8_avx512, k, body, length, words, count);
}

SN_TARGET_AVX512 void sn_inceptionn_roundtrip_avx512(int k, const uint8_t *words, size_t count, uint8_t *out)
{
    const sn_largest largest = largest_of(k);
    for (; count >= SN_CODING_BLOCK_WORDS; count -= SN_CODING_BLOCK_WORDS) {
        const __m512i lanes = _mm512_loadu_si512(words);
        const sn_split_16 parts = split(lanes, largest);
        __m512i kept = _mm512_maskz_set1_epi32(parts.from_8, (int32_t)0xff000000);
        kept = _mm512_and_si512(_mm512_mask_set1_epi32(kept, parts.from_16, (int32_t)0xffff0000), parts.vector);
        const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(kept), _mm512_set1_ps(0x1p-31f));
        const __m512i bits = _mm512_castps_si512(value);
        const __m512i signed_bits = _mm512_mask_mov_epi32(bits, _mm512_test_epi32_mask(bits, bits),
                                                          sn_with_signs(bits, lanes));
        _mm512_storeu_si512(out, _mm512_mask_mov_epi32(signed_bits, parts.is_32, lanes));
        words += 4 * SN_CODING_BLOCK_WORDS;
        out += 4 * SN_CODING_BLOCK_WORDS;
    }
    sn_inceptionn_roundtrip(k, words, count, out);
}
#endif
