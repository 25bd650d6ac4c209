/* Codec 6 with AVX2, byte for byte as exact.c, which handles incomplete blocks and those sent as they are. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
#include <immintrin.h>

#define SN_TARGET_AVX2 __attribute__((target("avx2,popcnt")))
#include "codecs/bursts_avx2.h"
#include "codecs/exact.h"

enum { LANES = 32, MOST_VECTORS = SN_EXACT_MOST_ELEMENTS / LANES, ROOM = SN_EXACT_MOST_ELEMENTS + LANES };

#define SN_FOUR _Pragma("GCC unroll 4")

/* The symbols of a block, 32 a register; codes of 32 bits use four of the eight. */
typedef struct {
    __m256i of[MOST_VECTORS];
} symbols;

SN_INLINE_AVX2 __m256i set(uint8_t byte) { return _mm256_set1_epi8((char)byte); }

SN_INLINE_AVX2 unsigned ones(uint64_t mask) { return (unsigned)__builtin_popcountll(mask); }

SN_INLINE_AVX2 uint32_t equal(__m256i bytes, uint8_t byte)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, set(byte)));
}

/* Splits 32 words: returns their symbols; writes the 96 bytes below these, and four more. */
SN_INLINE_AVX2 __m256i split_words(const uint8_t *words, uint8_t *below)
{
    const __m256i three = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
                                           0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    __m256i top[4];
    SN_FOUR
    for (unsigned i = 0; i < 4; i++) {
        const __m256i word = sn_load_8(words + 32 * i);
        const __m256i rotated = _mm256_or_si256(_mm256_slli_epi32(word, 1), _mm256_srli_epi32(word, 31));
        const __m256i rest = _mm256_shuffle_epi8(rotated, three);
        top[i] = _mm256_srli_epi32(rotated, 24);
        _mm_storeu_si128((__m128i *)(below + 24 * i), _mm256_castsi256_si128(rest));
        _mm_storeu_si128((__m128i *)(below + 24 * i + 12), _mm256_extracti128_si256(rest, 1));
    }
    const __m256i low = _mm256_packus_epi32(top[0], top[1]), high = _mm256_packus_epi32(top[2], top[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The same of 32 halves, of which a byte each is below. */
SN_INLINE_AVX2 __m256i split_halves(const uint8_t *halves, uint8_t *below)
{
    __m256i rotated[2];
    for (unsigned i = 0; i < 2; i++) {
        const __m256i half = sn_load_8(halves + 32 * i);
        rotated[i] = _mm256_or_si256(_mm256_slli_epi16(half, 1), _mm256_srli_epi16(half, 15));
    }
    const __m256i mask = _mm256_set1_epi16(0xff);
    const __m256i low = _mm256_packus_epi16(_mm256_and_si256(rotated[0], mask), _mm256_and_si256(rotated[1], mask));
    const __m256i high = _mm256_packus_epi16(_mm256_srli_epi16(rotated[0], 8), _mm256_srli_epi16(rotated[1], 8));
    sn_store_8(below, _mm256_permute4x64_epi64(low, 0xd8));
    return _mm256_permute4x64_epi64(high, 0xd8);
}

SN_INLINE_AVX2 uint8_t greatest_of(const symbols *from)
{
    __m256i most = from->of[0];
    for (unsigned v = 1; v < SN_EXACT_SEEN / LANES; v++)
        most = _mm256_max_epu8(most, from->of[v]);
    __m128i lanes = _mm_max_epu8(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    lanes = _mm_max_epu8(lanes, _mm_srli_si128(lanes, 8));
    lanes = _mm_max_epu8(lanes, _mm_srli_si128(lanes, 4));
    lanes = _mm_max_epu8(lanes, _mm_srli_si128(lanes, 2));
    lanes = _mm_max_epu8(lanes, _mm_srli_si128(lanes, 1));
    return (uint8_t)_mm_cvtsi128_si32(lanes);
}

SN_INLINE_AVX2 unsigned count_of(const void *seen, uint8_t symbol)
{
    const symbols *const from = seen;
    unsigned found = 0;
    SN_FOUR
    for (unsigned v = 0; v < SN_EXACT_SEEN / LANES; v++)
        found += ones(equal(from->of[v], symbol));
    return found;
}

/* Writes those of 32 bytes whose bits are set next to each other, and up to 8 more. Returns their end. */
SN_INLINE_AVX2 uint8_t *compact(uint8_t *out, __m256i bytes, uint32_t mask)
{
    const __m128i half[2] = {_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)};
    SN_FOUR
    for (unsigned i = 0; i < 4; i++) {
        const uint32_t eight = mask >> 8 * i & 0xff;
        const __m128i from = i % 2 ? _mm_srli_si128(half[i / 2], 8) : half[i / 2];
        _mm_storel_epi64((__m128i *)out,
                         _mm_shuffle_epi8(from, _mm_loadl_epi64((const __m128i *)sn_compact_bytes[eight])));
        out += ones(eight);
    }
    return out;
}

/* Returns the bits of a mask as bytes of ones and zeros. */
SN_INLINE_AVX2 __m256i spread(uint32_t mask)
{
    const __m256i each = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)mask), each);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}

/* Writes the second codes of `escaped` symbols, and these where a code does not say them. Returns the end. */
SN_INLINE_AVX2 uint8_t *put_others(uint8_t *at, uint8_t base, const uint8_t *others, unsigned escaped)
{
    const unsigned second = (escaped + 7) / 8;
    uint32_t planes[3][MOST_VECTORS];
    uint8_t *raw = at + 3 * second;
    for (unsigned v = 0; LANES * v < escaped; v++) {
        const unsigned left = escaped - LANES * v;
        const uint32_t there = left < LANES ? (UINT32_C(1) << left) - 1 : UINT32_MAX;
        const __m256i distance = _mm256_sub_epi8(set(base), sn_load_8(others + LANES * v));
        const __m256i near = _mm256_min_epu8(_mm256_sub_epi8(distance, set(2)), set(7));
        const __m256i code = _mm256_andnot_si256(_mm256_cmpeq_epi8(distance, set(255)), near);
        for (unsigned bit = 0; bit < 3; bit++)
            planes[bit][v] = there & (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(code, 7 - (int)bit));
    }
    for (unsigned bit = 0; bit < 3; bit++) /* each plane over what the one before wrote too much */
        for (unsigned v = 0; LANES * v < escaped; v++)
            sn_store32(at + bit * second + 4 * v, planes[bit][v]);
    for (unsigned v = 0; LANES * v < escaped; v++) {
        const uint32_t far = planes[0][v] & planes[1][v] & planes[2][v];
        if (far)
            raw = compact(raw, sn_load_8(others + LANES * v), far);
    }
    return raw;
}

SN_INLINE_AVX2 uint8_t *put_whole(uint8_t *out, int bits, const uint8_t *words)
{
    const unsigned vectors = bits == 32 ? MOST_VECTORS / 2 : MOST_VECTORS, plane = 4 * vectors;
    uint8_t below[3 * SN_EXACT_BLOCK_WORDS + 16], others[ROOM];
    symbols from;
    SN_FOUR
    for (unsigned v = 0; v < vectors; v++)
        from.of[v] = bits == 32 ? split_words(words + 128 * v, below + 96 * v)
                                : split_halves(words + 64 * v, below + 32 * v);
    const uint8_t base = sn_exact_base(count_of, &from, greatest_of(&from));
    uint8_t *at = out, *escaped = others;
    *at++ = base;
    SN_FOUR
    for (unsigned v = 0; v < vectors; v++) {
        const uint32_t zero = equal(from.of[v], base), one = equal(from.of[v], (uint8_t)(base - 1));
        const uint32_t two = equal(from.of[v], (uint8_t)(base - 2));
        sn_store32(at + 4 * v, ~(zero | two));
        sn_store32(at + plane + 4 * v, ~(zero | one));
        escaped = compact(escaped, from.of[v], ~(zero | one | two));
    }
    uint8_t *const raw = put_others(at + 2 * plane, base, others, (unsigned)(escaped - others));
    const size_t rest = bits == 32 ? 3 * SN_EXACT_BLOCK_WORDS : 2 * SN_EXACT_BLOCK_WORDS;
    for (size_t i = 0; i < rest; i += 32) /* memcpy would be one instruction, which begins slowly */
        sn_store_8(raw + i, sn_load_8(below + i));
    return sn_exact_shorter(out, raw + rest, words, SN_EXACT_BLOCK_WORDS);
}

/* Separates bytes to where bits are set, zeros between them. Moves `*from` to their end; reads up to 8 bytes more. */
SN_INLINE_AVX2 __m256i expand(const uint8_t **from, uint32_t mask)
{
    __m128i part[4];
    SN_FOUR
    for (unsigned i = 0; i < 4; i++) {
        const uint32_t eight = mask >> 8 * i & 0xff;
        part[i] = _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i *)*from),
                                   _mm_loadl_epi64((const __m128i *)sn_expand_bytes[eight]));
        *from += ones(eight);
    }
    return _mm256_set_m128i(_mm_unpacklo_epi64(part[2], part[3]), _mm_unpacklo_epi64(part[0], part[1]));
}

/* Writes the symbols of second codes, and up to 31 bytes more. Returns the end of those sent as they are. */
SN_INLINE_AVX2 const uint8_t *take_others(const uint8_t *seconds, uint8_t base, unsigned escaped, uint8_t *others)
{
    const unsigned second = (escaped + 7) / 8;
    const uint8_t *raw = seconds + 3 * second;
    for (unsigned v = 0; LANES * v < escaped; v++) {
        const unsigned left = escaped - LANES * v;
        const uint32_t there = left < LANES ? (UINT32_C(1) << left) - 1 : UINT32_MAX;
        const uint8_t *const at = seconds + 4 * v;
        const uint32_t one = sn_load32(at), two = sn_load32(at + second), four = sn_load32(at + 2 * second);
        __m256i distance = _mm256_sub_epi8(set(2), spread(one)); /* ones are -1 */
        distance = _mm256_add_epi8(distance, _mm256_and_si256(spread(two), set(2)));
        distance = _mm256_add_epi8(distance, _mm256_and_si256(spread(four), set(4)));
        distance = _mm256_or_si256(distance, spread(~(one | two | four))); /* 255 */
        __m256i symbol = _mm256_sub_epi8(set(base), distance);
        const uint32_t far = one & two & four & there;
        if (far)
            symbol = sn_choose(symbol, expand(&raw, far), spread(far));
        sn_store_8(others + LANES * v, symbol);
    }
    return raw;
}

/* Joins 32 symbols and the 96 bytes below them, of which it may touch 4 more. */
SN_INLINE_AVX2 void join_words(uint8_t *words, __m256i top, const uint8_t *below)
{
    const __m256i three = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
                                           0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    const __m128i half[2] = {_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1)};
    SN_FOUR
    for (unsigned i = 0; i < 4; i++) {
        const __m128i eight = i % 2 ? _mm_srli_si128(half[i / 2], 8) : half[i / 2];
        const __m256i rest = _mm256_shuffle_epi8(sn_load_two_quads(below + 24 * i, below + 24 * i + 12), three);
        const __m256i rotated = _mm256_or_si256(_mm256_slli_epi32(_mm256_cvtepu8_epi32(eight), 24), rest);
        sn_store_8(words + 32 * i, _mm256_or_si256(_mm256_srli_epi32(rotated, 1), _mm256_slli_epi32(rotated, 31)));
    }
}

SN_INLINE_AVX2 void join_halves(uint8_t *halves, __m256i top, const uint8_t *below)
{
    const __m256i high = _mm256_permute4x64_epi64(top, 0xd8), low = _mm256_permute4x64_epi64(sn_load_8(below), 0xd8);
    const __m256i rotated[2] = {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
    for (unsigned i = 0; i < 2; i++)
        sn_store_8(halves + 32 * i,
                   _mm256_or_si256(_mm256_srli_epi16(rotated[i], 1), _mm256_slli_epi16(rotated[i], 15)));
}

SN_INLINE_AVX2 const uint8_t *take_whole(const uint8_t *in, int bits, uint8_t *words)
{
    const unsigned vectors = bits == 32 ? MOST_VECTORS / 2 : MOST_VECTORS, plane = 4 * vectors;
    const uint8_t base = *in++;
    unsigned escaped = 0;
    SN_FOUR
    for (unsigned v = 0; v < vectors; v += 2)
        escaped += ones(sn_load64(in + 4 * v) & sn_load64(in + plane + 4 * v));
    const unsigned second = (escaped + 7) / 8;
    const uint8_t *const seconds = in + 2 * plane;
    for (unsigned bit = 1; escaped % 8 && bit <= 3; bit++)
        if (seconds[bit * second - 1] >> escaped % 8)
            return NULL;
    uint8_t others[ROOM];
    const uint8_t *const below = take_others(seconds, base, escaped, others), *other = others;
    SN_FOUR
    for (unsigned v = 0; v < vectors; v++) {
        const uint32_t low = sn_load32(in + 4 * v), high = sn_load32(in + plane + 4 * v);
        const __m256i ones_of = spread(low), twos = spread(high), near = _mm256_add_epi8(set(base), ones_of);
        const __m256i symbol = _mm256_add_epi8(near, _mm256_add_epi8(twos, twos));
        const __m256i top = sn_choose(symbol, expand(&other, low & high), _mm256_and_si256(ones_of, twos));
        if (bits == 32)
            join_words(words + 128 * v, top, below + 96 * v);
        else
            join_halves(words + 64 * v, top, below + 32 * v);
    }
    return below + (bits == 32 ? 3 * SN_EXACT_BLOCK_WORDS : 2 * SN_EXACT_BLOCK_WORDS);
}

#define SN_EXACT_INLINE SN_INLINE_AVX2
#define SN_EXACT_TARGET SN_TARGET_AVX2
#define SN_EXACT_NAME(kernel) sn_exact_##kernel##_avx2
#include "codecs/exact_widths.h"
#endif
