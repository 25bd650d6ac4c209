/* Codec 7 with AVX-512, bit for bit as mx.c, which handles incomplete blocks. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX512
#include "codecs/bursts_avx512.h"
#include "codecs/mx_avx2.h"

#define SN_MX_INLINE SN_INLINE_AVX512

enum { REGISTERS = 2, LANES = 16 };

typedef __m512i lanes;
typedef __m256i row;

SN_MX_INLINE lanes load(const uint8_t *words) { return _mm512_loadu_si512(words); }
SN_MX_INLINE void store(uint8_t *words, lanes x) { _mm512_storeu_si512(words, x); }
SN_MX_INLINE lanes set(int32_t x) { return _mm512_set1_epi32(x); }
SN_MX_INLINE uint32_t first(lanes x) { return (uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(x)); }
SN_MX_INLINE lanes and(lanes x, lanes y) { return _mm512_and_si512(x, y); }
SN_MX_INLINE lanes or(lanes x, lanes y) { return _mm512_or_si512(x, y); }
SN_MX_INLINE lanes add(lanes x, lanes y) { return _mm512_add_epi32(x, y); }
SN_MX_INLINE lanes sub(lanes x, lanes y) { return _mm512_sub_epi32(x, y); }
SN_MX_INLINE lanes min(lanes x, lanes y) { return _mm512_min_epi32(x, y); }
SN_MX_INLINE lanes max(lanes x, lanes y) { return _mm512_max_epi32(x, y); }
SN_MX_INLINE lanes down(lanes x, unsigned bits) { return _mm512_srli_epi32(x, bits); }

SN_MX_INLINE lanes add_floats(lanes x, lanes y)
{
    return _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y)));
}

SN_MX_INLINE lanes sub_floats(lanes x, lanes y)
{
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y)));
}

SN_MX_INLINE lanes greatest_of(const lanes *of)
{
    const lanes both = max(of[0], of[1]);
    const __m256i half = _mm256_max_epi32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
    return _mm512_broadcastd_epi32(_mm256_castsi256_si128(sn_mx_greatest(half)));
}

/* Returns one byte of each lane of two registers: that whose place in the first lane is given. */
SN_MX_INLINE row bytes_of(const lanes *of, char place)
{
    static const char first_bytes[64] = {0,  4,  8,  12, 16, 20, 24, 28, 32, 36,  40,  44,  48,  52,  56,  60,
                                         64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124};
    const __m512i which = _mm512_or_si512(_mm512_loadu_si512(first_bytes), _mm512_set1_epi8(place));
    return _mm512_castsi512_si256(_mm512_permutex2var_epi8(of[0], which, of[1]));
}

SN_MX_INLINE row top_bytes(const lanes *of) { return bytes_of(of, 3); }
SN_MX_INLINE row low_bytes(const lanes *of) { return bytes_of(of, 0); }

SN_MX_INLINE void store_products(uint8_t *words, sn_mx_format f, row elements, float factor)
{
    const __m512i wide = _mm512_cvtepu8_epi16(elements);
    const __m512i signs = _mm512_and_si512(_mm512_slli_epi16(wide, 16 - f.bits),
                                           _mm512_set1_epi16((short)SN_MX_HALF_SIGN));
    const __m512i magnitudes = _mm512_and_si512(_mm512_slli_epi16(wide, SN_MX_HALF_FRACTION - f.mantissa),
                                                _mm512_set1_epi16((short)sn_mx_half_magnitude(f)));
    const __m512i halves = _mm512_or_si512(signs, magnitudes);
    const __m512 low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves)), by = _mm512_set1_ps(factor);
    const __m512 high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
    _mm512_storeu_si512(words, _mm512_castps_si512(_mm512_mul_ps(low, by)));
    _mm512_storeu_si512(words + 64, _mm512_castps_si512(_mm512_mul_ps(high, by)));
}

#define load_row sn_mx_load_row
#define store_row sn_mx_store_row
#define elements_of sn_mx_elements
#define are_products sn_mx_are_products
#include "codecs/mx_blocks.h"

SN_MX_KERNELS(SN_TARGET_AVX512, _avx512)
#endif
