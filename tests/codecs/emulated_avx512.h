/* The intrinsics of AVX2 and AVX-512 in portable C, so that the AVX-512 kernels are tested on machines that have none:
   SIMDe's (https://github.com/simd-everywhere/simde), and those that version 0.7.4 of it lacks. */
#ifndef SOFTNIC_TESTS_EMULATED_AVX512_H
#define SOFTNIC_TESTS_EMULATED_AVX512_H
#include <stdint.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* nothing here is called from elsewhere */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>

/* Memory that is masked out is not touched. */
static inline __m512i sn_emulated_maskz_loadu_epi8(uint64_t mask, const void *from)
{
    uint8_t bytes[64] = {0};
    __m512i loaded;
    for (unsigned i = 0; i < 64; i++)
        if (mask >> i & 1)
            bytes[i] = ((const uint8_t *)from)[i];
    memcpy(&loaded, bytes, sizeof loaded);
    return loaded;
}

static inline __m512i sn_emulated_maskz_loadu_epi32(uint16_t mask, const void *from)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < 16; i++)
        bytes |= (uint64_t)(mask >> i & 1) * 15 << 4 * i;
    return sn_emulated_maskz_loadu_epi8(bytes, from);
}

static inline __m512i sn_emulated_cvttps_epi32(__m512 from)
{
    float values[16];
    int32_t lanes[16];
    memcpy(values, &from, sizeof values);
    for (unsigned i = 0; i < 16; i++)
        lanes[i] = values[i] >= -0x1p31f && values[i] < 0x1p31f ? (int32_t)values[i] : INT32_MIN;
    return simde_mm512_loadu_epi32(lanes);
}

#define SN_EMULATED_CONVERSION(name, to, to_lane, from, from_lane) \
    static inline to name(from wide) \
    { \
        from_lane given[16]; \
        to_lane lanes[16]; \
        to converted; \
        memcpy(given, &wide, sizeof given); \
        for (unsigned i = 0; i < 16; i++) \
            lanes[i] = (to_lane)given[i]; \
        memcpy(&converted, lanes, sizeof converted); \
        return converted; \
    }
SN_EMULATED_CONVERSION(sn_emulated_cvtepi32_ps, __m512, float, __m512i, int32_t)
SN_EMULATED_CONVERSION(sn_emulated_cvtepi32_epi8, __m128i, uint8_t, __m512i, uint32_t)
SN_EMULATED_CONVERSION(sn_emulated_cvtepi32_epi16, __m256i, uint16_t, __m512i, uint32_t)
SN_EMULATED_CONVERSION(sn_emulated_cvtepu8_epi32, __m512i, uint32_t, __m128i, uint8_t)
SN_EMULATED_CONVERSION(sn_emulated_cvtepu16_epi32, __m512i, uint32_t, __m256i, uint16_t)

static inline int32_t sn_emulated_reduce_max_epi32(__m512i from)
{
    int32_t lanes[16], most = INT32_MIN;
    memcpy(lanes, &from, sizeof lanes);
    for (unsigned i = 0; i < 16; i++)
        most = most > lanes[i] ? most : lanes[i];
    return most;
}

static inline __m512i sn_emulated_512_maskz_compress_epi8(uint64_t mask, __m512i from)
{
    uint8_t bytes[64], kept[64] = {0};
    memcpy(bytes, &from, sizeof bytes);
    for (unsigned i = 0, to = 0; i < 64; i++)
        if (mask >> i & 1)
            kept[to++] = bytes[i];
    memcpy(&from, kept, sizeof from);
    return from;
}

static inline __m256i sn_emulated_256_maskz_compress_epi8(uint32_t mask, __m256i from)
{
    return simde_mm512_castsi512_si256(sn_emulated_512_maskz_compress_epi8(mask, simde_mm512_castsi256_si512(from)));
}

static inline __m256i sn_emulated_maskz_expand_epi8(uint32_t mask, __m256i from)
{
    uint8_t bytes[32], lanes[32] = {0};
    memcpy(bytes, &from, sizeof bytes);
    for (unsigned i = 0, next = 0; i < 32; i++)
        if (mask >> i & 1)
            lanes[i] = bytes[next++];
    return simde_mm256_loadu_epi8(lanes);
}

static inline __m512i sn_emulated_mask_expand_epi8(__m512i otherwise, uint64_t mask, __m512i from)
{
    uint8_t bytes[64], lanes[64];
    memcpy(bytes, &from, sizeof bytes);
    memcpy(lanes, &otherwise, sizeof lanes);
    for (unsigned i = 0, next = 0; i < 64; i++)
        if (mask >> i & 1)
            lanes[i] = bytes[next++];
    return simde_mm512_loadu_epi8(lanes);
}

static inline __m512i sn_emulated_cvtepu8_epi16(__m256i from)
{
    uint8_t bytes[32];
    uint16_t lanes[32];
    memcpy(bytes, &from, sizeof bytes);
    for (unsigned i = 0; i < 32; i++)
        lanes[i] = bytes[i];
    return simde_mm512_loadu_epi16(lanes);
}

/* Of finite numbers. */
static inline __m512 sn_emulated_cvtph_ps(__m256i from)
{
    uint16_t halves[16];
    float values[16];
    __m512 converted;
    memcpy(halves, &from, sizeof halves);
    for (unsigned i = 0; i < 16; i++) {
        const uint32_t bits = (uint32_t)(halves[i] & 0x7fff) << 13 | (uint32_t)(halves[i] >> 15) << 31;
        memcpy(values + i, &bits, sizeof bits);
        values[i] *= 0x1p112f;
    }
    memcpy(&converted, values, sizeof converted);
    return converted;
}

static inline __m512i sn_emulated_madd_epi16(__m512i a, __m512i b)
{
    int16_t x[32], y[32];
    int32_t sums[16];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (unsigned i = 0; i < 16; i++)
        sums[i] = x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1];
    return simde_mm512_loadu_epi32(sums);
}

/* Moves lanes, or groups of four of them, as the two bits at each place of `how` say. */
static inline __m512 sn_emulated_permute_ps(__m512 from, unsigned how, unsigned size)
{
    float lanes[16], moved[16];
    memcpy(lanes, &from, sizeof lanes);
    for (unsigned i = 0; i < 16; i++) {
        const unsigned place = i / size % 4, first = i - i % size - place * size;
        moved[i] = lanes[first + (how >> 2 * place & 3) * size + i % size];
    }
    memcpy(&from, moved, sizeof from);
    return from;
}

#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) sn_emulated_madd_epi16(a, b)
#define _mm512_mask_expand_epi8(otherwise, mask, from) sn_emulated_mask_expand_epi8(otherwise, mask, from)
#define _mm512_cvtepu8_epi16(from) sn_emulated_cvtepu8_epi16(from)
#define _mm512_cvtph_ps(from) sn_emulated_cvtph_ps(from)
#define _mm512_permute_ps(from, how) sn_emulated_permute_ps(from, how, 1)
#define _mm512_shuffle_f32x4(from, same, how) sn_emulated_permute_ps(from, how, 4) /* used with one register */
#define _mm512_maskz_loadu_epi8(mask, from) sn_emulated_maskz_loadu_epi8(mask, from)
#define _mm512_maskz_loadu_epi32(mask, from) sn_emulated_maskz_loadu_epi32(mask, from)
#define _mm512_cvttps_epi32(from) sn_emulated_cvttps_epi32(from)
#define _mm512_cvtepi32_ps(from) sn_emulated_cvtepi32_ps(from)
#define _mm512_cvtepi32_epi8(from) sn_emulated_cvtepi32_epi8(from)
#define _mm512_cvtepi32_epi16(from) sn_emulated_cvtepi32_epi16(from)
#define _mm512_cvtepu8_epi32(from) sn_emulated_cvtepu8_epi32(from)
#define _mm512_cvtepu16_epi32(from) sn_emulated_cvtepu16_epi32(from)
#define _mm512_reduce_max_epi32(from) sn_emulated_reduce_max_epi32(from)
#define _mm512_maskz_compress_epi8(mask, from) sn_emulated_512_maskz_compress_epi8(mask, from)
#define _mm256_maskz_compress_epi8(mask, from) sn_emulated_256_maskz_compress_epi8(mask, from)
#define _mm256_maskz_expand_epi8(mask, from) sn_emulated_maskz_expand_epi8(mask, from)

#endif
