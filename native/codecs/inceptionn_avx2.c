/* Codec 1 with AVX2, bit for bit as inceptionn.c, which explains the arithmetic and handles the ends too short for
   whole registers. Magnitudes are in fixed point of 31 bits here, so that the sign is beside them at the top of the
   lane, and a vector is its first 8 or 16 bits. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
#include "codecs/bursts_avx2.h"
#include "codecs/decoders_avx2.h"

/* The largest magnitudes without a vector, of at most 8 bits, of at most 16. */
typedef struct {
    __m256i of_0;
    __m256i of_8;
    __m256i of_16;
} sn_largest;

static inline int32_t largest_zero(int k)
{
    return ((127 - k) << 23) - 1;
}

SN_INLINE_AVX2 sn_largest largest_of(int k)
{
    const int32_t from_16 = (127 - k + (k + 1) / 2) << 23, one = 127 << 23;
    return (sn_largest){_mm256_set1_epi32(largest_zero(k)), _mm256_set1_epi32(from_16 - 1),
                        _mm256_set1_epi32(one - 1)};
}

/* Returns the vectors, without signs, of words below one. */
SN_INLINE_AVX2 sn_split_8 split(__m256i words, sn_largest largest)
{
    const __m256i magnitude = sn_magnitudes(words);
    const __m256 scaled = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p31f));
    return (sn_split_8){_mm256_cvttps_epi32(scaled), _mm256_cmpgt_epi32(magnitude, largest.of_0),
                        _mm256_cmpgt_epi32(magnitude, largest.of_8), _mm256_cmpgt_epi32(magnitude, largest.of_16)};
}

SN_INLINE_AVX2 sn_split_8 split_signed(__m256i words, sn_largest largest)
{
    sn_split_8 parts = split(words, largest);
    const __m256i sign = _mm256_andnot_si256(_mm256_set1_epi32(0x7fffffff), words);
    parts.vector = sn_choose(_mm256_or_si256(parts.vector, sign), words, parts.is_32);
    return parts;
}

SN_INLINE_AVX2 void encode_coding_block(sn_writer *writer, int k, const uint8_t *words, unsigned count)
{
    const sn_largest largest = largest_of(k);
    uint8_t whole[4 * SN_CODING_BLOCK_WORDS];
    if (count < SN_CODING_BLOCK_WORDS) {
        memset(whole, 0, sizeof whole);
        memcpy(whole, words, 4 * (size_t)count);
        words = whole;
    }
    const __m256i even = sn_load_two_quads(words, words + 32), odd = sn_load_two_quads(words + 16, words + 48);
    const sn_split_coding_block parts = sn_join_quads(split_signed(even, largest), split_signed(odd, largest));
    writer->out = sn_pack_split(writer->out, &parts, 0);
    if (count > SN_BURST_WORDS)
        writer->out = sn_pack_split(writer->out, &parts, 1);
}

SN_TARGET_AVX2 size_t sn_inceptionn_encode_avx2(int k, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                                size_t capacity, size_t *consumed)
{
    const sn_group_codec codec = {{encode_coding_block, k}, sn_is_zero_group, largest_zero(k), 0};
    return sn_encode_by_groups(codec, words, count, first, out, capacity, consumed);
}

SN_TARGET_AVX2 ptrdiff_t sn_inceptionn_decode_avx2(int k, const uint8_t *body, size_t length, uint8_t *words,
                                                   size_t count)
{
    return sn_decode_bursts(sn_expand_8, k, body, length, words, count);
}

SN_TARGET_AVX2 void sn_inceptionn_roundtrip_avx2(int k, const uint8_t *words, size_t count, uint8_t *out)
{
    const sn_largest largest = largest_of(k);
    for (; count >= SN_BURST_WORDS; count -= SN_BURST_WORDS) {
        const __m256i lanes = sn_load_8(words);
        const sn_split_8 parts = split(lanes, largest);
        const __m256i kept =
            _mm256_or_si256(_mm256_slli_epi32(parts.from_8, 24), _mm256_slli_epi32(parts.from_16, 16));
        const __m256i fixed = _mm256_sign_epi32(_mm256_and_si256(parts.vector, kept), lanes);
        const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(fixed), _mm256_set1_ps(0x1p-31f));
        sn_store_8(out, sn_choose(_mm256_castps_si256(value), lanes, parts.is_32));
        words += 4 * SN_BURST_WORDS;
        out += 4 * SN_BURST_WORDS;
    }
    sn_inceptionn_roundtrip(k, words, count, out);
}
#endif
