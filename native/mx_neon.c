/* Codec 7 with NEON, bit for bit as mx.c, which handles incomplete blocks and those at the ends of the range of floats.
   mx_avx2.c explains the rounding. */
#include "kernels.h"

#ifdef SN_HAVE_NEON
#include <arm_neon.h>

#include "mx.h"
#include "rht.h"

enum { REGISTERS = 8, LANES = 4 };

static const uint32_t EXPONENTS = 255u << 23;

typedef struct {
    uint32x4_t words[REGISTERS];
    uint32x4_t magnitudes[REGISTERS];
    uint32_t greatest; /* magnitude */
    uint32_t exponent; /* of it, in place; a usual one for zeros */
} block;

static SN_INLINE block load_block(const uint8_t *words)
{
    block b;
    uint32x4_t most = vdupq_n_u32(0);
    for (unsigned i = 0; i < REGISTERS; i++) {
        b.words[i] = vreinterpretq_u32_u8(vld1q_u8(words + 4 * LANES * i));
        b.magnitudes[i] = vandq_u32(b.words[i], vdupq_n_u32(0x7fffffff));
        most = vmaxq_u32(most, b.magnitudes[i]);
    }
    b.greatest = vmaxvq_u32(most);
    b.exponent = b.greatest ? b.greatest & EXPONENTS : (uint32_t)SN_MX_LEAST_USUAL << 23;
    return b;
}

/* As in mx_avx2.c. */
typedef struct {
    uint32x4_t least;
    uint32x4_t base;
} limits;

static SN_INLINE limits limits_of(sn_mx_format f, const block *b)
{
    const uint32_t least = b->exponent - ((uint32_t)sn_mx_exponents(f) << 23);
    return (limits){vdupq_n_u32(least), vdupq_n_u32(((23 - f.mantissa) << 23) - (least >> (23 - f.mantissa)))};
}

static SN_INLINE uint32x4_t origins_of(sn_mx_format f, uint32x4_t magnitudes, limits l)
{
    const uint32x4_t exponents = vmaxq_u32(vandq_u32(magnitudes, vdupq_n_u32(EXPONENTS)), l.least);
    const uint32x4_t below = vshlq_u32(exponents, vdupq_n_s32((int)f.mantissa - 23));
    return vaddq_u32(vaddq_u32(exponents, below), l.base);
}

static SN_INLINE float32x4_t sum_of(uint32x4_t magnitudes, uint32x4_t origins)
{
    return vaddq_f32(vreinterpretq_f32_u32(magnitudes), vreinterpretq_f32_u32(origins));
}

static SN_INLINE uint32x4_t signs_of(uint32x4_t words)
{
    return vandq_u32(words, vdupq_n_u32(1u << 31));
}

/* Returns the elements of register i. */
static SN_INLINE uint16x4_t elements_of(sn_mx_format f, const block *b, unsigned i, limits l)
{
    const float32x4_t sum = sum_of(b->magnitudes[i], origins_of(f, b->magnitudes[i], l));
    const uint32x4_t codes = vandq_u32(vreinterpretq_u32_f32(sum), vdupq_n_u32(0xff));
    const uint32x4_t signs = vshlq_u32(signs_of(b->words[i]), vdupq_n_s32((int)f.bits - 32));
    return vmovn_u32(vorrq_u32(vminq_u32(codes, vdupq_n_u32(f.most)), signs));
}

static SN_INLINE void put(uint8_t *out, int parameter, const uint8_t *words)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const block b = load_block(words);
    if (!sn_mx_is_usual(b.greatest)) {
        sn_mx_put(out, parameter, words, SN_MX_BLOCK_WORDS);
        return;
    }
    const limits l = limits_of(f, &b);
    uint8_t elements[SN_MX_BLOCK_WORDS];
    for (unsigned i = 0; i < REGISTERS; i += 2) {
        const uint16x8_t both = vcombine_u16(elements_of(f, &b, i, l), elements_of(f, &b, i + 1, l));
        vst1_u8(elements + LANES * i, vmovn_u16(both));
    }
    *out = sn_mx_scale(f, b.greatest);
    sn_rht_pack(out + 1, elements, SN_MX_BLOCK_WORDS, (int)f.bits);
}

/* sn_mx_are_products in mx_avx2.h. */
static SN_INLINE int are_products(sn_mx_format f, uint32_t scale, const uint8_t *elements)
{
    const uint8x16_t mask = vdupq_n_u8((uint8_t)((1u << (f.bits - 1)) - 1));
    const uint32_t greatest = vmaxvq_u8(vmaxq_u8(vandq_u8(vld1q_u8(elements), mask),
                                                 vandq_u8(vld1q_u8(elements + 16), mask)));
    return sn_mx_is_product_scale(scale) ? greatest <= f.most : scale == 0 && greatest == 0;
}

static SN_INLINE void take(const uint8_t *in, int parameter, uint8_t *words)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    uint8_t elements[SN_MX_BLOCK_WORDS];
    sn_rht_unpack(in + 1, elements, SN_MX_BLOCK_WORDS, (int)f.bits);
    if (!are_products(f, *in, elements)) {
        sn_mx_take(in, parameter, words, SN_MX_BLOCK_WORDS);
        return;
    }
    const float factor = sn_mx_factor(f, *in);
    for (unsigned i = 0; i < SN_MX_BLOCK_WORDS; i += 8) {
        const uint16x8_t lanes = vmovl_u8(vld1_u8(elements + i));
        const uint16x8_t signs = vandq_u16(vshlq_u16(lanes, vdupq_n_s16((int16_t)(16 - f.bits))),
                                           vdupq_n_u16(SN_MX_HALF_SIGN));
        const uint16x8_t magnitudes = vandq_u16(vshlq_u16(lanes, vdupq_n_s16((int16_t)(SN_MX_HALF_FRACTION - f.mantissa))),
                                                vdupq_n_u16((uint16_t)sn_mx_half_magnitude(f)));
        const float16x8_t halves = vreinterpretq_f16_u16(vorrq_u16(signs, magnitudes));
        const float32x4_t low = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(halves)), factor);
        const float32x4_t high = vmulq_n_f32(vcvt_f32_f16(vget_high_f16(halves)), factor);
        vst1q_u8(words + 4 * i, vreinterpretq_u8_f32(low));
        vst1q_u8(words + 4 * i + 16, vreinterpretq_u8_f32(high));
    }
}

static SN_INLINE void round_block(int parameter, const uint8_t *words, uint8_t *out)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const block b = load_block(words);
    if (!sn_mx_is_usual(b.greatest)) {
        sn_mx_round(parameter, words, out, SN_MX_BLOCK_WORDS);
        return;
    }
    const uint32_t fraction = (f.most & ((1u << f.mantissa) - 1)) << (23 - f.mantissa);
    const limits l = limits_of(f, &b);
    const uint32x4_t most = vdupq_n_u32(b.exponent | fraction);
    for (unsigned i = 0; i < REGISTERS; i++) {
        const uint32x4_t origins = origins_of(f, b.magnitudes[i], l);
        const float32x4_t sum = sum_of(b.magnitudes[i], origins);
        const uint32x4_t rounded = vreinterpretq_u32_f32(vsubq_f32(sum, vreinterpretq_f32_u32(origins)));
        vst1q_u8(out + 4 * LANES * i, vreinterpretq_u8_u32(vorrq_u32(vminq_u32(rounded, most), signs_of(b.words[i]))));
    }
}

SN_MX_KERNELS(, _neon)
#endif
