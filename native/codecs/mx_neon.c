/* Codec 7 with NEON, bit for bit as mx.c, which handles incomplete blocks. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_NEON
#include <arm_neon.h>

#include "codecs/codes.h"
#include "codecs/mx.h"

#define SN_MX_INLINE static SN_INLINE

enum { REGISTERS = 8, LANES = 4 };

typedef uint32x4_t lanes;
typedef uint8x16x2_t row;

SN_MX_INLINE lanes load(const uint8_t *words) { return vreinterpretq_u32_u8(vld1q_u8(words)); }
SN_MX_INLINE void store(uint8_t *words, lanes x) { vst1q_u8(words, vreinterpretq_u8_u32(x)); }
SN_MX_INLINE lanes set(int32_t x) { return vdupq_n_u32((uint32_t)x); }
SN_MX_INLINE uint32_t first(lanes x) { return vgetq_lane_u32(x, 0); }
SN_MX_INLINE lanes and(lanes x, lanes y) { return vandq_u32(x, y); }
SN_MX_INLINE lanes or(lanes x, lanes y) { return vorrq_u32(x, y); }
SN_MX_INLINE lanes add(lanes x, lanes y) { return vaddq_u32(x, y); }
SN_MX_INLINE lanes sub(lanes x, lanes y) { return vsubq_u32(x, y); }
SN_MX_INLINE lanes min(lanes x, lanes y) { return vminq_u32(x, y); }
SN_MX_INLINE lanes max(lanes x, lanes y) { return vmaxq_u32(x, y); }
SN_MX_INLINE lanes down(lanes x, unsigned bits) { return vshlq_u32(x, vdupq_n_s32(-(int)bits)); }

SN_MX_INLINE lanes add_floats(lanes x, lanes y)
{
    return vreinterpretq_u32_f32(vaddq_f32(vreinterpretq_f32_u32(x), vreinterpretq_f32_u32(y)));
}

SN_MX_INLINE lanes sub_floats(lanes x, lanes y)
{
    return vreinterpretq_u32_f32(vsubq_f32(vreinterpretq_f32_u32(x), vreinterpretq_f32_u32(y)));
}

SN_MX_INLINE lanes greatest_of(const lanes *of)
{
    lanes most = of[0];
    for (unsigned i = 1; i < REGISTERS; i++)
        most = max(most, of[i]);
    return vdupq_n_u32(vmaxvq_u32(most));
}

#define HALVES(each, of) each(vreinterpretq_u16_u32((of)[0]), vreinterpretq_u16_u32((of)[1]))
#define BYTES(each, halves, of) \
    each(vreinterpretq_u8_u16(HALVES(halves, of)), vreinterpretq_u8_u16(HALVES(halves, (of) + 2)))

SN_MX_INLINE row top_bytes(const lanes *of)
{
    return (row){{BYTES(vuzp2q_u8, vuzp2q_u16, of), BYTES(vuzp2q_u8, vuzp2q_u16, of + 4)}};
}

SN_MX_INLINE row low_bytes(const lanes *of)
{
    return (row){{BYTES(vuzp1q_u8, vuzp1q_u16, of), BYTES(vuzp1q_u8, vuzp1q_u16, of + 4)}};
}

/* Returns elements of magnitudes that may be too large, with the signs of the highest bits of `tops`. */
SN_MX_INLINE row elements_of(sn_mx_format f, row magnitudes, row tops)
{
    for (unsigned i = 0; i < 2; i++) {
        const uint8x16_t signs = vshlq_u8(vandq_u8(tops.val[i], vdupq_n_u8(0x80)), vdupq_n_s8((int8_t)f.bits - 8));
        magnitudes.val[i] = vorrq_u8(vminq_u8(magnitudes.val[i], vdupq_n_u8((uint8_t)f.most)), signs);
    }
    return magnitudes;
}

SN_MX_INLINE void store_row(uint8_t *out, sn_mx_format f, row elements)
{
    uint8_t bytes[SN_MX_BLOCK_WORDS];
    vst1q_u8(bytes, elements.val[0]);
    vst1q_u8(bytes + 16, elements.val[1]);
    sn_pack_codes(out, bytes, SN_MX_BLOCK_WORDS, (int)f.bits);
}

SN_MX_INLINE row load_row(const uint8_t *in, sn_mx_format f)
{
    uint8_t bytes[SN_MX_BLOCK_WORDS];
    sn_unpack_codes(in, bytes, SN_MX_BLOCK_WORDS, (int)f.bits);
    return (row){{vld1q_u8(bytes), vld1q_u8(bytes + 16)}};
}

/* sn_mx_are_products in mx_avx2.h. */
SN_MX_INLINE int are_products(sn_mx_format f, uint32_t scale, row elements)
{
    const uint8x16_t mask = vdupq_n_u8((uint8_t)((1u << (f.bits - 1)) - 1));
    const uint32_t greatest = vmaxvq_u8(vmaxq_u8(vandq_u8(elements.val[0], mask), vandq_u8(elements.val[1], mask)));
    return sn_mx_is_product_scale(scale) ? greatest <= f.most : scale == 0 && greatest == 0;
}

SN_MX_INLINE void store_products(uint8_t *words, sn_mx_format f, row elements, float factor)
{
    for (unsigned i = 0; i < 4; i++) {
        const uint8x16_t half = elements.val[i / 2];
        const uint16x8_t wide = vmovl_u8(i % 2 ? vget_high_u8(half) : vget_low_u8(half));
        const uint16x8_t signs = vandq_u16(vshlq_u16(wide, vdupq_n_s16((int16_t)(16 - f.bits))),
                                           vdupq_n_u16(SN_MX_HALF_SIGN));
        const uint16x8_t magnitudes = vandq_u16(vshlq_u16(wide, vdupq_n_s16((int16_t)(SN_MX_HALF_FRACTION - f.mantissa))),
                                                vdupq_n_u16((uint16_t)sn_mx_half_magnitude(f)));
        const float16x8_t halves = vreinterpretq_f16_u16(vorrq_u16(signs, magnitudes));
        const float32x4_t low = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(halves)), factor);
        const float32x4_t high = vmulq_n_f32(vcvt_f32_f16(vget_high_f16(halves)), factor);
        vst1q_u8(words + 32 * i, vreinterpretq_u8_f32(low));
        vst1q_u8(words + 32 * i + 16, vreinterpretq_u8_f32(high));
    }
}

#include "codecs/mx_blocks.h"

SN_MX_KERNELS(, _neon)
#endif
