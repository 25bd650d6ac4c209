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

static inline __m512i sn_emulated_maskz_loadu_epi32(uint16_t mask, const void *from)
{
    int32_t lanes[16] = {0};
    for (unsigned i = 0; i < 16; i++)
        if (mask >> i & 1)
            memcpy(&lanes[i], (const uint8_t *)from + 4 * i, 4); /* what is masked out is not touched */
    return simde_mm512_loadu_epi32(lanes);
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

static inline __m512 sn_emulated_cvtepi32_ps(__m512i from)
{
    int32_t lanes[16];
    float values[16];
    memcpy(lanes, &from, sizeof lanes);
    for (unsigned i = 0; i < 16; i++)
        values[i] = (float)lanes[i];
    return simde_mm512_loadu_ps(values);
}

static inline __m256i sn_emulated_maskz_compress_epi8(uint32_t mask, __m256i from)
{
    uint8_t bytes[32], kept[32] = {0};
    memcpy(bytes, &from, sizeof bytes);
    for (unsigned i = 0, to = 0; i < 32; i++)
        if (mask >> i & 1)
            kept[to++] = bytes[i];
    return simde_mm256_loadu_epi8(kept);
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

#define _mm512_maskz_loadu_epi32(mask, from) sn_emulated_maskz_loadu_epi32(mask, from)
#define _mm512_cvttps_epi32(from) sn_emulated_cvttps_epi32(from)
#define _mm512_cvtepi32_ps(from) sn_emulated_cvtepi32_ps(from)
#define _mm256_maskz_compress_epi8(mask, from) sn_emulated_maskz_compress_epi8(mask, from)
#define _mm256_maskz_expand_epi8(mask, from) sn_emulated_maskz_expand_epi8(mask, from)

#endif
