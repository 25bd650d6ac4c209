/* Bursts (bursts.h) with AVX-512, shared by codecs 1 and 2. VBMI2's byte compression and expansion move all vectors of
   a burst at once; CPUs without it (before Ice Lake and Zen 4) use the AVX2 kernels. Between split and pack, a lane
   holds an 8-bit vector in byte 1 and a 16-bit one in bytes 2 and 3. Of the bytes kept, the odd ones' flags are then
   the tag as sent: 01, 10, and 11 if the whole word is kept. */
#ifndef SOFTNIC_BURSTS_AVX512_H
#define SOFTNIC_BURSTS_AVX512_H
#ifdef SN_EMULATED_AVX512
#include SN_EMULATED_AVX512
#define SN_TARGET_AVX2
#endif

#include "codecs/decoders_avx2.h"

#define SN_INLINE_AVX512 static SN_INLINE SN_TARGET_AVX512

/* A coding block split: the vectors, and the lanes whose vector has at least 8, 16, 32 bits. */
typedef struct {
    __m512i vector;
    uint16_t from_8;
    uint16_t from_16;
    uint16_t is_32;
} sn_split_16;

/* A coding block ready to send: the tag words of its bursts, the first in the low half, and the bytes of the
   vectors. */
typedef struct {
    __m512i vector;
    uint32_t tags;
    uint64_t kept;
} sn_packing;

/* Loads up to 16 words, padded with zeros. */
SN_INLINE_AVX512 __m512i sn_load_16(const uint8_t *words, unsigned count)
{
    return _mm512_maskz_loadu_epi32((uint16_t)((1u << count) - 1), words);
}

SN_INLINE_AVX512 __m512i sn_magnitudes_16(__m512i words)
{
    return _mm512_and_si512(words, _mm512_set1_epi32(0x7fffffff));
}

/* Returns `bits` with the signs of `words`. */
SN_INLINE_AVX512 __m512i sn_with_signs(__m512i bits, __m512i words)
{
    return _mm512_or_si512(bits, _mm512_andnot_si512(_mm512_set1_epi32(0x7fffffff), words));
}

SN_INLINE_AVX512 sn_packing sn_prepare(sn_split_16 split)
{
    __m512i kept = _mm512_maskz_set1_epi32(split.from_8, 0x0000ff00);
    kept = _mm512_mask_set1_epi32(kept, split.from_16, (int32_t)0xffff0000);
    kept = _mm512_mask_set1_epi32(kept, split.is_32, -1);
    return (sn_packing){split.vector, _mm512_movepi16_mask(kept), _mm512_movepi8_mask(kept)};
}

/* sn_pack_burst for burst 0 or 1 of a coding block. */
SN_INLINE_AVX512 uint8_t *sn_pack_half(uint8_t *out, sn_packing packing, unsigned burst)
{
    const uint32_t kept = (uint32_t)(packing.kept >> 32 * burst);
    const __m256i vectors = burst ? _mm512_extracti64x4_epi64(packing.vector, 1)
                                  : _mm512_castsi512_si256(packing.vector);
    sn_store16(out, (uint16_t)(packing.tags >> 16 * burst));
    sn_store_8(out + 2, _mm256_maskz_compress_epi8(kept, vectors));
    return out + 2 + __builtin_popcount(kept);
}

/* As sn_is_zero_group with wider registers. */
SN_INLINE_AVX512 int sn_is_zero_group_16(const uint8_t *words, int32_t most)
{
    const __m512i limit = _mm512_set1_epi32(most);
    __m512i greatest = sn_magnitudes_16(_mm512_loadu_si512(words));
    if (_mm512_cmpgt_epi32_mask(greatest, limit))
        return 0; /* in most data that is not all zero, the first words decide */
    for (unsigned i = 64; i < 4 * SN_GROUP_WORDS; i += 64)
        greatest = _mm512_max_epi32(greatest, sn_magnitudes_16(_mm512_loadu_si512(words + i)));
    return _mm512_cmpgt_epi32_mask(greatest, limit) == 0;
}

SN_INLINE_AVX512 __m256i sn_expand_8_avx512(const uint8_t *burst, __m256i tags)
{
    const __m256i by_tag = _mm256_setr_epi32(0, (int32_t)0xff000000, (int32_t)0xffff0000, -1, 0, (int32_t)0xff000000,
                                             (int32_t)0xffff0000, -1);
    const __m256i kept = _mm256_castps_si256(_mm256_permutevar_ps(_mm256_castsi256_ps(by_tag), tags));
    return _mm256_maskz_expand_epi8(_mm256_movepi8_mask(kept), sn_load_8(burst + 2));
}

#endif
