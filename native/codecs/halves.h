/* 16-bit floats and their conversion to 32 bits: IEEE 754's binary16 (float16) and the upper half of a binary32
   (bfloat16). Widening is exact. Narrowing rounds half to even, and to infinity what is too large; a NaN keeps the
   upper bits of its payload and becomes quiet, as with F16C.

   Written with masks and without branches, for compilers to vectorise. Denormals never pass through float
   arithmetic, which a process may have configured to flush them, except those of binary32, which narrow to zero. */
#ifndef SOFTNIC_HALVES_H
#define SOFTNIC_HALVES_H
#include "words.h"

/* Magnitudes above these are NaNs. */
enum { SN_INFINITY_16 = 0x7c00, SN_INFINITY_B16 = 0x7f80, SN_INFINITY_32 = 0x7f800000 };

/* Difference of the exponent biases of binary32 and binary16, in place. */
enum { SN_REBIAS = (127 - 15) << 23 };

static SN_INLINE uint32_t sn_widened_float16(uint16_t half)
{
    const int32_t magnitude = half & 0x7fff;
    const uint32_t infinite = sn_mask(magnitude >= SN_INFINITY_16), small = sn_mask(magnitude < 0x400);
    const uint32_t usual = ((uint32_t)magnitude << 13) + SN_REBIAS + (infinite & SN_REBIAS);
    const uint32_t from_small = sn_bits_of((float)magnitude * 0x1p-24f);
    return (from_small & small) | (usual & ~small) | ((uint32_t)half << 16 & 0x80000000);
}

/* Below 2^-14, numbers of binary16 are 2^-24 apart, as those of binary32 between 0.5 and 1. */
static SN_INLINE uint16_t sn_narrowed_float16(uint32_t word)
{
    const int32_t magnitude = (int32_t)(word & 0x7fffffff);
    const uint32_t nan = sn_mask(magnitude > SN_INFINITY_32), small = sn_mask(magnitude < (127 - 14) << 23);
    const int32_t rounded = (magnitude - SN_REBIAS + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const uint32_t usual = (uint32_t)(rounded < SN_INFINITY_16 ? rounded : SN_INFINITY_16);
    const uint32_t from_nan = (uint32_t)(magnitude >> 13 & 0x3ff) | SN_INFINITY_16 | 0x200;
    const uint32_t from_small = sn_bits_of(sn_float_of((uint32_t)magnitude) + 0.5f) - sn_bits_of(0.5f);
    const uint32_t from_large = (from_nan & nan) | (usual & ~nan);
    return (uint16_t)((from_small & small) | (from_large & ~small) | (word >> 16 & 0x8000));
}

static SN_INLINE uint32_t sn_widened_bfloat16(uint16_t half)
{
    return (uint32_t)half << 16;
}

static SN_INLINE uint16_t sn_narrowed_bfloat16(uint32_t word)
{
    const uint32_t nan = sn_mask((int32_t)(word & 0x7fffffff) > SN_INFINITY_32);
    const uint32_t rounded = (word + 0x7fff + (word >> 16 & 1)) >> 16;
    return (uint16_t)(((word >> 16 | 0x40) & nan) | (rounded & ~nan));
}

/* Returns an integer that orders like the number; both zeros are 0. NaNs are not supported. */
static SN_INLINE int16_t sn_half_order(uint16_t half)
{
    const int16_t magnitude = (int16_t)(half & 0x7fff), negative = (int16_t)-(half >> 15);
    return (int16_t)((magnitude ^ negative) - negative);
}

#endif
