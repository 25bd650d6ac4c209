/* Codec 6 with AVX-512, byte for byte as exact.c, which handles incomplete blocks and those sent as they are. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX512
#include "codecs/bursts_avx512.h"
#include "codecs/exact.h"

#define SN_EIGHT _Pragma("GCC unroll 8")

enum { REGISTERS = 8, LANES = 64, MOST_VECTORS = SN_EXACT_MOST_ELEMENTS / LANES };

/* The symbols of a block, 64 a register; codes of 32 bits use two of the four. */
typedef struct {
    __m512i of[MOST_VECTORS];
} symbols;

SN_INLINE_AVX512 __m512i set(uint8_t byte) { return _mm512_set1_epi8((char)byte); }

SN_INLINE_AVX512 unsigned ones(uint64_t mask) { return (unsigned)__builtin_popcountll(mask); }

/* Splits a block; writes what is below the symbols, and 16 bytes more. */
SN_INLINE_AVX512 symbols split(int bits, const uint8_t *words, uint8_t *below)
{
    symbols found;
    if (bits == 32) {
        const __m512i three = _mm512_setr_epi32(0x04020100, 0x09080605, 0x0e0d0c0a, 0x14121110, 0x19181615, 0x1e1d1c1a,
                                                0x24222120, 0x29282625, 0x2e2d2c2a, 0x34323130, 0x39383635, 0x3e3d3c3a,
                                                0, 0, 0, 0);
        __m128i quarter[REGISTERS];
        SN_EIGHT
        for (unsigned i = 0; i < REGISTERS; i++) {
            const __m512i rotated = _mm512_rol_epi32(_mm512_loadu_si512(words + 64 * i), 1);
            quarter[i] = _mm512_cvtepi32_epi8(_mm512_srli_epi32(rotated, 24));
            _mm512_storeu_si512(below + 48 * i, _mm512_permutexvar_epi8(three, rotated));
        }
        for (unsigned i = 0; i < 2; i++) {
            const __m512i low = _mm512_inserti32x4(_mm512_castsi128_si512(quarter[4 * i]), quarter[4 * i + 1], 1);
            found.of[i] = _mm512_inserti32x4(_mm512_inserti32x4(low, quarter[4 * i + 2], 2), quarter[4 * i + 3], 3);
        }
        return found;
    }
    SN_EIGHT
    for (unsigned i = 0; i < MOST_VECTORS; i++) {
        __m256i high[2];
        for (unsigned j = 0; j < 2; j++) {
            const __m512i halves = _mm512_loadu_si512(words + 128 * i + 64 * j);
            const __m512i rotated = _mm512_or_si512(_mm512_slli_epi16(halves, 1), _mm512_srli_epi16(halves, 15));
            high[j] = _mm512_cvtepi16_epi8(_mm512_srli_epi16(rotated, 8));
            _mm256_storeu_si256((__m256i *)(below + 64 * i + 32 * j), _mm512_cvtepi16_epi8(rotated));
        }
        found.of[i] = _mm512_inserti64x4(_mm512_castsi256_si512(high[0]), high[1], 1);
    }
    return found;
}

SN_INLINE_AVX512 __m128i quarter_of(__m512i bytes, unsigned i)
{
    return i == 0   ? _mm512_castsi512_si128(bytes)
           : i == 1 ? _mm512_extracti32x4_epi32(bytes, 1)
           : i == 2 ? _mm512_extracti32x4_epi32(bytes, 2)
                    : _mm512_extracti32x4_epi32(bytes, 3);
}

/* Joins symbols and what is below them, of which it may touch 16 bytes more. */
SN_INLINE_AVX512 void join(int bits, uint8_t *words, const symbols *from, const uint8_t *below)
{
    if (bits == 32) {
        const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i first = _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x030303));
        const __m512i bytes = _mm512_add_epi32(first, _mm512_set1_epi32(0x020100));
        SN_EIGHT
        for (unsigned i = 0; i < REGISTERS; i++) {
            const __m512i row = _mm512_loadu_si512(below + 48 * i);
            const __m512i low = _mm512_maskz_permutexvar_epi8(UINT64_C(0x7777777777777777), bytes, row);
            const __m128i quarter = quarter_of(from->of[i / 4], i % 4);
            const __m512i top = _mm512_slli_epi32(_mm512_cvtepu8_epi32(quarter), 24);
            _mm512_storeu_si512(words + 64 * i, _mm512_ror_epi32(_mm512_or_si512(top, low), 1));
        }
        return;
    }
    SN_EIGHT
    for (unsigned i = 0; i < REGISTERS; i++) {
        const __m256i high = i % 2 ? _mm512_extracti64x4_epi64(from->of[i / 2], 1)
                                   : _mm512_castsi512_si256(from->of[i / 2]);
        const __m256i low = _mm256_loadu_si256((const __m256i *)(below + 32 * i));
        const __m512i rotated = _mm512_or_si512(_mm512_slli_epi16(_mm512_cvtepu8_epi16(high), 8),
                                                _mm512_cvtepu8_epi16(low));
        _mm512_storeu_si512(words + 64 * i,
                            _mm512_or_si512(_mm512_srli_epi16(rotated, 1), _mm512_slli_epi16(rotated, 15)));
    }
}

SN_INLINE_AVX512 uint8_t greatest_of(const symbols *from)
{
    __m512i most = from->of[0];
    for (unsigned v = 1; v < SN_EXACT_SEEN / LANES; v++)
        most = _mm512_max_epu8(most, from->of[v]);
    const __m256i half = _mm256_max_epu8(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    __m128i lanes = _mm_max_epu8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    lanes = _mm_max_epu8(lanes, _mm_srli_si128(lanes, 8));
    lanes = _mm_max_epu8(lanes, _mm_srli_si128(lanes, 4));
    lanes = _mm_max_epu8(lanes, _mm_srli_si128(lanes, 2));
    lanes = _mm_max_epu8(lanes, _mm_srli_si128(lanes, 1));
    return (uint8_t)_mm_cvtsi128_si32(lanes);
}

SN_INLINE_AVX512 unsigned count_of(const void *seen, uint8_t symbol)
{
    const symbols *const from = seen;
    unsigned found = 0;
    for (unsigned v = 0; v < SN_EXACT_SEEN / LANES; v++)
        found += ones(_mm512_cmpeq_epi8_mask(from->of[v], set(symbol)));
    return found;
}

SN_INLINE_AVX512 uint8_t *put_whole(uint8_t *out, int bits, const uint8_t *words)
{
    enum { ROOM = SN_EXACT_MOST_ELEMENTS + LANES };
    const unsigned vectors = bits == 32 ? MOST_VECTORS / 2 : MOST_VECTORS, plane = 8 * vectors;
    uint8_t below[3 * SN_EXACT_BLOCK_WORDS + 64], others[ROOM];
    const symbols from = split(bits, words, below);
    const uint8_t base = sn_exact_base(count_of, &from, greatest_of(&from));
    unsigned escaped = 0;
    uint8_t *at = out;
    *at++ = base;
    SN_EIGHT
    for (unsigned v = 0; v < vectors; v++) {
        const uint64_t zero = _mm512_cmpeq_epi8_mask(from.of[v], set(base));
        const uint64_t one = _mm512_cmpeq_epi8_mask(from.of[v], set((uint8_t)(base - 1)));
        const uint64_t two = _mm512_cmpeq_epi8_mask(from.of[v], set((uint8_t)(base - 2)));
        sn_store64(at + 8 * v, ~(zero | two));
        sn_store64(at + plane + 8 * v, ~(zero | one));
        const uint64_t other = ~(zero | one | two);
        _mm512_storeu_si512(others + escaped, _mm512_maskz_compress_epi8(other, from.of[v]));
        escaped += ones(other);
    }
    at += 2 * plane;
    const unsigned second = (escaped + 7) / 8;
    uint64_t planes[3][MOST_VECTORS];
    uint8_t *raw = at + 3 * second;
    for (unsigned v = 0; LANES * v < escaped; v++) {
        const unsigned left = escaped - LANES * v;
        const uint64_t there = left < LANES ? (UINT64_C(1) << left) - 1 : UINT64_MAX;
        const __m512i symbol = _mm512_loadu_si512(others + LANES * v), distance = _mm512_sub_epi8(set(base), symbol);
        const __m512i near = _mm512_min_epu8(_mm512_sub_epi8(distance, set(2)), set(7));
        const uint64_t above = _mm512_cmpeq_epi8_mask(distance, set(255));
        const __m512i code = _mm512_maskz_mov_epi8(there & ~above, near);
        for (unsigned bit = 0; bit < 3; bit++)
            planes[bit][v] = _mm512_test_epi8_mask(code, set((uint8_t)(1u << bit)));
    }
    for (unsigned bit = 0; bit < 3; bit++) /* each plane over what the one before wrote too much */
        for (unsigned v = 0; LANES * v < escaped; v++)
            sn_store64(at + bit * second + 8 * v, planes[bit][v]);
    for (unsigned v = 0; LANES * v < escaped; v++) {
        const uint64_t far = planes[0][v] & planes[1][v] & planes[2][v];
        _mm512_storeu_si512(raw, _mm512_maskz_compress_epi8(far, _mm512_loadu_si512(others + LANES * v)));
        raw += ones(far);
    }
    const size_t rest = bits == 32 ? 3 * SN_EXACT_BLOCK_WORDS : 2 * SN_EXACT_BLOCK_WORDS;
    for (size_t i = 0; i < rest; i += 64) /* memcpy would be one instruction, which begins slowly */
        _mm512_storeu_si512(raw + i, _mm512_loadu_si512(below + i));
    return sn_exact_shorter(out, raw + rest, words, SN_EXACT_BLOCK_WORDS);
}

/* Returns the 64 bits of a plane from bit `at` on; touches 9 bytes. */
SN_INLINE_AVX512 uint64_t bits_from(const uint8_t *plane, unsigned at)
{
    const uint8_t *const first = plane + at / 8;
    return sn_load64(first) >> at % 8 | (uint64_t)first[8] << 1 << (63 - at % 8);
}

/* Returns the symbols of second codes, whose bits are `one`, `two` and `four`; reads those sent as they are from `raw`. */
SN_INLINE_AVX512 __m512i others_of(uint8_t base, uint64_t one, uint64_t two, uint64_t four, const uint8_t *raw)
{
    __m512i distance = _mm512_mask_mov_epi8(set(2), one, set(3));
    distance = _mm512_mask_add_epi8(distance, two, distance, set(2));
    distance = _mm512_mask_add_epi8(distance, four, distance, set(4));
    distance = _mm512_mask_mov_epi8(distance, ~(one | two | four), set(255));
    return _mm512_mask_expand_epi8(_mm512_sub_epi8(set(base), distance), one & two & four, _mm512_loadu_si512(raw));
}

SN_INLINE_AVX512 const uint8_t *take_whole(const uint8_t *in, int bits, uint8_t *words)
{
    const unsigned vectors = bits == 32 ? MOST_VECTORS / 2 : MOST_VECTORS, plane = 8 * vectors;
    const uint8_t base = *in++;
    unsigned escaped = 0;
    SN_EIGHT
    for (unsigned v = 0; v < vectors; v++)
        escaped += ones(sn_load64(in + 8 * v) & sn_load64(in + plane + 8 * v));
    const unsigned second = (escaped + 7) / 8;
    const uint8_t *const seconds = in + 2 * plane, *raw = seconds + 3 * second;
    for (unsigned bit = 1; escaped % 8 && bit <= 3; bit++)
        if (seconds[bit * second - 1] >> escaped % 8)
            return NULL;
    symbols found;
    unsigned at = 0;
    SN_EIGHT
    for (unsigned v = 0; v < vectors; v++) {
        const uint64_t low = sn_load64(in + 8 * v), high = sn_load64(in + plane + 8 * v), other = low & high;
        const unsigned count = ones(other);
        const uint64_t there = count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
        const uint64_t one = bits_from(seconds, at) & there, two = bits_from(seconds + second, at) & there;
        const uint64_t four = bits_from(seconds + 2 * second, at) & there;
        __m512i symbol = _mm512_mask_mov_epi8(set(base), low, set((uint8_t)(base - 1)));
        symbol = _mm512_mask_mov_epi8(symbol, high, set((uint8_t)(base - 2)));
        found.of[v] = _mm512_mask_expand_epi8(symbol, other, others_of(base, one, two, four, raw));
        raw += ones(one & two & four);
        at += count;
    }
    join(bits, words, &found, raw);
    return raw + (bits == 32 ? 3 * SN_EXACT_BLOCK_WORDS : 2 * SN_EXACT_BLOCK_WORDS);
}

#define SN_EXACT_INLINE SN_INLINE_AVX512
#define SN_EXACT_TARGET SN_TARGET_AVX512
#define SN_EXACT_NAME(kernel) sn_exact_##kernel##_avx512
#include "codecs/exact_widths.h"
#endif
