/* Codec 2 with AVX2, bit for bit as bounded.c, which explains the arithmetic and handles the ends too short for whole
   groups. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
#include "codecs/bursts_avx2.h"
#include "codecs/decoders_avx2.h"

static inline float power_of_two(int n)
{
    return sn_float_of((uint32_t)(127 + n) << 23);
}

/* Bits of 2^23, which is added to q. */
enum { ZERO = (127 + 23) << 23 };

/* Returns eight words as multiples of the step: the vectors are ZERO + q, without signs. `scale` is 2^(k-1). */
SN_INLINE_AVX2 sn_split_8 split(__m256i words, __m256 scale)
{
    const __m256 scaled = _mm256_mul_ps(_mm256_castsi256_ps(sn_magnitudes(words)), scale);
    const __m256i q = _mm256_castps_si256(_mm256_add_ps(scaled, _mm256_set1_ps(0x1p23f)));
    return (sn_split_8){q, _mm256_cmpgt_epi32(q, _mm256_set1_epi32(ZERO)),
                        _mm256_cmpgt_epi32(q, _mm256_set1_epi32(ZERO + 127)),
                        _mm256_cmpgt_epi32(q, _mm256_set1_epi32(ZERO + 32767))};
}

/* Returns the vectors as sent, with signs. */
SN_INLINE_AVX2 sn_split_8 split_signed(__m256i words, __m256 scale)
{
    sn_split_8 parts = split(words, scale);
    const __m256i q = sn_choose(_mm256_slli_epi32(parts.vector, 24), _mm256_slli_epi32(parts.vector, 16),
                                parts.from_16);
    const __m256i sign = _mm256_andnot_si256(_mm256_set1_epi32(0x7fffffff), words);
    parts.vector = sn_choose(_mm256_or_si256(q, sign), words, parts.is_32);
    return parts;
}

/* Adds the two bursts of 16 words to the open group. */
SN_INLINE_AVX2 void put_bursts(sn_writer *writer, int k, const uint8_t *words)
{
    const __m256 scale = _mm256_set1_ps(power_of_two(k - 1));
    const __m256i even = sn_load_two_quads(words, words + 32), odd = sn_load_two_quads(words + 16, words + 48);
    const sn_split_coding_block parts = sn_join_quads(split_signed(even, scale), split_signed(odd, scale));
    for (unsigned burst = 0; burst < 2; burst++) {
        const int nonzero = (parts.tags >> 16 * burst & 0xffff) != 0;
        uint8_t *const end = sn_pack_split(writer->out, &parts, burst);
        writer->out = nonzero ? end : writer->out;
        writer->group_flags |= (uint32_t)nonzero << writer->group_bursts++;
    }
}

SN_INLINE_AVX2 void encode_coding_block(sn_writer *writer, int k, const uint8_t *words, unsigned count)
{
    uint8_t whole[4 * SN_CODING_BLOCK_WORDS];
    if (count < SN_CODING_BLOCK_WORDS) {
        memset(whole, 0, sizeof whole);
        memcpy(whole, words, 4 * (size_t)count);
        words = whole;
    }
    if (writer->group_bursts % SN_GROUP_BURSTS == 0)
        sn_open_group(writer);
    put_bursts(writer, k, words);
}

SN_TARGET_AVX2 size_t sn_bounded_encode_avx2(int k, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                             size_t capacity, size_t *consumed)
{
    const int32_t largest_zero = (127 - k) << 23; /* 2^-k is half a step, which rounds to 0 */
    const sn_group_codec codec = {{encode_coding_block, k}, sn_is_zero_group, largest_zero, 1};
    return sn_encode_by_groups(codec, words, count, first, out, capacity, consumed);
}

SN_TARGET_AVX2 ptrdiff_t sn_bounded_decode_avx2(int k, const uint8_t *body, size_t length, uint8_t *words,
                                                size_t count)
{
    return sn_decode_groups(sn_expand_8, k, body, length, words, count);
}

SN_TARGET_AVX2 void sn_bounded_roundtrip_avx2(int k, const uint8_t *words, size_t count, uint8_t *out)
{
    const __m256 scale = _mm256_set1_ps(power_of_two(k - 1)), step = _mm256_set1_ps(power_of_two(1 - k));
    for (; count >= SN_BURST_WORDS; count -= SN_BURST_WORDS) {
        const __m256i lanes = sn_load_8(words);
        const sn_split_8 parts = split(lanes, scale);
        const __m256i q = _mm256_sub_epi32(parts.vector, _mm256_set1_epi32(ZERO));
        const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sign_epi32(q, lanes)), step);
        sn_store_8(out, sn_choose(_mm256_castps_si256(value), lanes, parts.is_32));
        words += 4 * SN_BURST_WORDS;
        out += 4 * SN_BURST_WORDS;
    }
    sn_bounded_roundtrip(k, words, count, out);
}
#endif
