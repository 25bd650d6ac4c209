/* Rows of lanes (lanes.h) with AVX-512, for lanes of up to 24 bits, shared by codecs 3 and 4. A coding block's sixteen
   lanes are in one register; its row is 2 * width bytes. */
#ifndef SOFTNIC_LANES_AVX512_H
#define SOFTNIC_LANES_AVX512_H
#include "codecs/bursts_avx512.h"
#include "codecs/lanes.h"

enum { SN_WIDEST_ROW_AVX512 = 24 };

/* Tables for packing and unpacking rows of one width. */
typedef struct {
    unsigned width;
    __m128i one, two;   /* width and 2 * width, as counts of bits */
    __m512i parts;      /* packing: for each pair of lanes, the bits at which bytes of the row begin */
    uint64_t beginning; /* which of these are in the pair */
    __m512i bytes;      /* unpacking: the four bytes that contain each lane */
    __m512i above;      /* how far it is above their bit 0 */
} sn_row;

SN_INLINE_AVX512 sn_row sn_row_of(unsigned width)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i bit = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int32_t)width));
    const __m512i byte = _mm512_mullo_epi32(_mm512_srli_epi32(bit, 3), _mm512_set1_epi32(0x01010101));
    /* A pair of lanes is 64 bits here; its low lane's first bit is its own, and bytes begin at multiples of 8. */
    const __m512i first = _mm512_and_si512(_mm512_sub_epi32(_mm512_setzero_si512(), bit), _mm512_set1_epi64(7));
    const __m512i firsts = _mm512_mullo_epi64(first, _mm512_set1_epi64(0x0101010101010101));
    const __m512i parts = _mm512_add_epi64(firsts, _mm512_set1_epi64(0x3830282018100800));
    return (sn_row){
        width,
        _mm_cvtsi32_si128((int)width),
        _mm_cvtsi32_si128(2 * (int)width),
        parts,
        _mm512_cmplt_epu8_mask(parts, _mm512_set1_epi8((char)(2 * width))),
        _mm512_add_epi32(byte, _mm512_set1_epi32(0x03020100)),
        _mm512_and_si512(bit, _mm512_set1_epi32(7)),
    };
}

/* Writes sixteen lanes of `width` (4..24) bits, whose other bits are zero; may touch 64 bytes. */
SN_INLINE_AVX512 void sn_store_row_16(uint8_t *out, __m512i lanes, sn_row row)
{
    if (row.width == 8) {
        _mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8(lanes));
    } else if (row.width == 16) {
        sn_store_8(out, _mm512_cvtepi32_epi16(lanes));
    } else {
        const __m512i even = _mm512_and_si512(lanes, _mm512_set1_epi64(0xffffffff));
        const __m512i pair = _mm512_or_si512(even, _mm512_sll_epi64(_mm512_srli_epi64(lanes, 32), row.one));
        const __m512i next = _mm512_permutexvar_epi64(_mm512_setr_epi64(1, 2, 3, 4, 5, 6, 7, 7), pair);
        const __m512i run = _mm512_or_si512(pair, _mm512_sll_epi64(next, row.two));
        const __m512i bytes = _mm512_multishift_epi64_epi8(row.parts, run);
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(row.beginning, bytes));
    }
}

/* Reads sixteen lanes, each at the bottom of its own, with undefined bits above; touches no byte but theirs. */
SN_INLINE_AVX512 __m512i sn_load_row_16(const uint8_t *in, sn_row row)
{
    if (row.width == 8)
        return _mm512_cvtepu8_epi32(sn_load_quad(in));
    if (row.width == 16)
        return _mm512_cvtepu16_epi32(sn_load_8(in));
    const __m512i bytes = _mm512_maskz_loadu_epi8(((uint64_t)1 << 2 * row.width) - 1, in);
    return _mm512_srlv_epi32(_mm512_permutexvar_epi8(row.bytes, bytes), row.above);
}

#endif
