/* Codec 5 with NEON, bit for bit as rht.c. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_NEON
#include <arm_neon.h>

#include "codecs/rht.h"

enum { REGISTERS = 32, LANES = 4 };

typedef struct {
    float32x4_t of[REGISTERS];
} block;

static SN_INLINE float32x4_t with_signs(float32x4_t x, uint32x4_t signs)
{
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(x), signs));
}

/* Additions within a register, at distances 1 and 2. */
static SN_INLINE float32x4_t add_within(float32x4_t x)
{
    static const uint32_t odd[LANES] = {0, 1u << 31, 0, 1u << 31}, upper[LANES] = {0, 0, 1u << 31, 1u << 31};
    x = vaddq_f32(with_signs(x, vld1q_u32(odd)), vrev64q_f32(x));
    return vaddq_f32(with_signs(x, vld1q_u32(upper)), vextq_f32(x, x, 2));
}

/* Additions of four registers at distances d and 2d. */
static SN_INLINE void add_four(float32x4_t *of, unsigned d)
{
    const float32x4_t a = vaddq_f32(of[0], of[d]), b = vsubq_f32(of[0], of[d]);
    const float32x4_t x = vaddq_f32(of[2 * d], of[3 * d]), y = vsubq_f32(of[2 * d], of[3 * d]);
    of[0] = vaddq_f32(a, x);
    of[d] = vaddq_f32(b, y);
    of[2 * d] = vsubq_f32(a, x);
    of[3 * d] = vsubq_f32(b, y);
}

static SN_INLINE void transform(block *b)
{
    for (unsigned i = 0; i < REGISTERS; i++)
        b->of[i] = add_within(b->of[i]);
    for (unsigned i = 0; i < REGISTERS; i += 4)
        add_four(b->of + i, 1);
    for (unsigned i = 0; i < REGISTERS; i += 16)
        for (unsigned j = i; j < i + 4; j++)
            add_four(b->of + j, 4);
    for (unsigned i = 0; i < REGISTERS / 2; i++) {
        const float32x4_t x = b->of[i], y = b->of[i + REGISTERS / 2];
        b->of[i] = vaddq_f32(x, y);
        b->of[i + REGISTERS / 2] = vsubq_f32(x, y);
    }
}

static SN_INLINE float32x4_t flipped(float32x4_t x, unsigned i)
{
    return with_signs(x, vld1q_u32(sn_rht_signs + LANES * i));
}

/* Loads a block and computes its coefficients; adding zero removes the sign of zeros. Returns the bits of the largest
   magnitude; those of a NaN if any word is one, because each coefficient is made of all words. */
static SN_INLINE uint32_t load_coefficients(const uint8_t *words, block *b)
{
    uint32x4_t greatest = vdupq_n_u32(0);
    for (unsigned i = 0; i < REGISTERS; i++)
        b->of[i] = flipped(vreinterpretq_f32_u8(vld1q_u8(words + 4 * LANES * i)), i);
    transform(b);
    for (unsigned i = 0; i < REGISTERS; i++) {
        b->of[i] = vaddq_f32(vmulq_n_f32(b->of[i], 0x1p-3f), vdupq_n_f32(0));
        greatest = vmaxq_u32(greatest, vreinterpretq_u32_f32(vabsq_f32(b->of[i])));
    }
    return vmaxvq_u32(greatest);
}

/* Computes the codes of a block's coefficients: index, and sign above it. */
static SN_INLINE void quantise(const block *x, float s, int b, uint8_t *codes)
{
    for (unsigned i = 0; i < REGISTERS; i += 4) {
        uint32x4_t code[4];
        for (unsigned j = 0; j < 4; j++)
            code[j] = vshlq_u32(vshrq_n_u32(vreinterpretq_u32_f32(x->of[i + j]), 31), vdupq_n_s32(b - 1));
        for (int t = 0; t < (1 << (b - 1)) - 1; t++) {
            const float32x4_t threshold = vdupq_n_f32(s * sn_rht_thresholds[b - SN_RHT_FEWEST_BITS][t]);
            for (unsigned j = 0; j < 4; j++)
                code[j] = vsubq_u32(code[j], vcageq_f32(x->of[i + j], threshold));
        }
        const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_u32(code[0]), vreinterpretq_u16_u32(code[1]));
        const uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_u32(code[2]), vreinterpretq_u16_u32(code[3]));
        vst1q_u8(codes + LANES * i, vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high)));
    }
}

/* Computes the words of codes. */
static SN_INLINE void restore(const uint8_t *codes, float s, int b, uint8_t *words)
{
    const int half = 1 << (b - 1);
    float values[2 * SN_RHT_MOST_LEVELS];
    block x;
    for (int i = 0; i < half; i++) {
        values[i] = sn_rht_levels[b - SN_RHT_FEWEST_BITS][i] * s;
        values[i + half] = -values[i];
    }
    for (unsigned i = 0; i < REGISTERS; i++) {
        const float four[LANES] = {values[codes[4 * i]], values[codes[4 * i + 1]], values[codes[4 * i + 2]],
                                   values[codes[4 * i + 3]]};
        x.of[i] = vld1q_f32(four);
    }
    transform(&x);
    for (unsigned i = 0; i < REGISTERS; i++)
        vst1q_u8(words + 4 * LANES * i, vreinterpretq_u8_f32(flipped(vmulq_n_f32(x.of[i], 0x1p-4f), i)));
}

static SN_INLINE void put_codes(uint8_t *out, int b, const block *x, float s)
{
    uint8_t codes[SN_RHT_BLOCK_WORDS];
    quantise(x, s, b, codes);
    sn_pack_codes(out, codes, SN_RHT_BLOCK_WORDS, b);
}

static SN_INLINE void take_codes(const uint8_t *in, const uint8_t *end, int b, float s, uint8_t *words)
{
    uint8_t codes[SN_RHT_BLOCK_WORDS];
    (void)end;
    sn_unpack_codes(in, codes, SN_RHT_BLOCK_WORDS, b);
    restore(codes, s, b, words);
}

static SN_INLINE void round_codes(int b, const block *x, float s, uint8_t *words)
{
    uint8_t codes[SN_RHT_BLOCK_WORDS];
    quantise(x, s, b, codes);
    restore(codes, s, b, words);
}

#define SN_RHT_INLINE static SN_INLINE
#define SN_RHT_TARGET
#define SN_RHT_NAME(kernel) sn_rht_##kernel##_neon
#include "codecs/rht_widths.h"
#endif
