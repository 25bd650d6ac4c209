/* Codec 2 with NEON, bit for bit as bounded.c, which explains the arithmetic and handles the ends too short for whole
   groups. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_NEON
#include "codecs/bursts_neon.h"

static inline float power_of_two(int n)
{
    return sn_float_of((uint32_t)(127 + n) << 23);
}

/* Bits of 2^23, which is added to q. */
enum { ZERO = (127 + 23) << 23 };

/* Four words split: their vectors, all ones in lanes with 32-bit vectors, and sums of comparisons (-tag). */
typedef struct {
    uint32x4_t vector;
    uint32x4_t minus_tag;
} split_quad;

/* `scale` is 2^(k-1). The product is exact, so a fused multiply-add rounds as the reference does. */
static SN_INLINE split_quad split(uint32x4_t words, float scale)
{
    const float32x4_t rounded = vfmaq_n_f32(vdupq_n_f32(0x1p23f), sn_magnitudes(words), scale);
    const uint32x4_t q = vreinterpretq_u32_f32(rounded);
    const uint32x4_t from_8 = vcgtq_u32(q, vdupq_n_u32(ZERO)), from_16 = vcgtq_u32(q, vdupq_n_u32(ZERO + 127)),
                     is_32 = vcgtq_u32(q, vdupq_n_u32(ZERO + 32767));
    const uint32x4_t placed = vbslq_u32(from_16, vshlq_n_u32(q, 16), vshlq_n_u32(q, 24));
    return (split_quad){vbslq_u32(is_32, words, sn_with_signs(placed, words)),
                        vaddq_u32(vaddq_u32(from_8, from_16), is_32)};
}

static SN_INLINE sn_split_coding_block split_coding_block(float scale, const uint8_t *words)
{
    sn_split_coding_block parts;
    uint32x4_t minus_tag[SN_QUADS];
    for (unsigned i = 0; i < SN_QUADS; i++) {
        const split_quad quad = split(sn_load_quad(words + 16 * i), scale);
        parts.quad[i] = quad.vector;
        minus_tag[i] = quad.minus_tag;
    }
    parts.tags = sn_join_tags(sn_even_bytes(sn_even_halves(minus_tag[0], minus_tag[1]),
                                            sn_even_halves(minus_tag[2], minus_tag[3])));
    return parts;
}

/* Adds the two bursts of 16 words to the open group. */
static SN_INLINE void put_bursts(sn_writer *writer, int k, const uint8_t *words)
{
    const sn_split_coding_block parts = split_coding_block(power_of_two(k - 1), words);
    for (unsigned burst = 0; burst < 2; burst++) {
        const int nonzero = (parts.tags >> 16 * burst & 0xffff) != 0;
        uint8_t *const end = sn_pack_split(writer->out, &parts, burst);
        writer->out = nonzero ? end : writer->out;
        writer->group_flags |= (uint32_t)nonzero << writer->group_bursts++;
    }
}

static SN_INLINE void encode_coding_block(sn_writer *writer, int k, const uint8_t *words, unsigned count)
{
    uint32_t whole[SN_CODING_BLOCK_WORDS];
    if (count < SN_CODING_BLOCK_WORDS) {
        sn_load_coding_block(whole, words, count);
        words = (const uint8_t *)whole;
    }
    if (writer->group_bursts % SN_GROUP_BURSTS == 0)
        sn_open_group(writer);
    put_bursts(writer, k, words);
}

size_t sn_bounded_encode_neon(int k, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                              size_t *consumed)
{
    const int32_t largest_zero = (127 - k) << 23; /* 2^-k is half a step, which rounds to 0 */
    const sn_group_codec codec = {{encode_coding_block, k}, sn_is_zero_group, largest_zero, 1};
    return sn_encode_by_groups(codec, words, count, first, out, capacity, consumed);
}

/* Decodes a group whose flag byte is at `in`; may touch SN_GROUP_BOUND bytes. Returns its end, or NULL if a burst
   flagged as nonzero has no vectors. `step` is 2^(1-k). */
static SN_INLINE const uint8_t *decode_group(const uint8_t *in, float step, uint8_t *words)
{
    uint32_t flags = *in++;
    int empty = 0;
    if (flags != 0xff)
        memset(words, 0, 4 * SN_GROUP_WORDS);
    for (; flags; flags &= flags - 1) {
        empty |= sn_load16(in) == 0;
        in = sn_decode_burst(in, step * 0x1p-24f, step * 0x1p-16f, words + 32 * __builtin_ctz(flags));
    }
    return empty ? NULL : in;
}

ptrdiff_t sn_bounded_decode_neon(int k, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const uint8_t *in = body, *start = body, *end = body + length;
    const float step = power_of_two(1 - k);
    uint8_t scratch[2 * SN_GROUP_BOUND];
    ptrdiff_t before = 0; /* bytes in front of `start` */
    for (; count >= SN_GROUP_WORDS; count -= SN_GROUP_WORDS) {
        if (start == body && end - in < SN_GROUP_BOUND) {
            const size_t left = (size_t)(end - in);
            memset(scratch, 0, sizeof scratch);
            memcpy(scratch, in, left);
            before = in - body;
            in = start = scratch;
            end = scratch + left;
        }
        if (in == end)
            return -1;
        in = decode_group(in, step, words);
        if (!in || in > end)
            return -1;
        words += 4 * SN_GROUP_WORDS;
    }
    const ptrdiff_t rest = sn_bounded_decode(k, in, (size_t)(end - in), words, count);
    return rest < 0 ? -1 : before + (in - start) + rest;
}

/* Rounds four words. Those above 32767 steps stay unchanged, and NaNs, which compare as false. */
static SN_INLINE uint32x4_t roundtrip_quad(uint32x4_t words, float scale, float step)
{
    const float32x4_t scaled = vmulq_n_f32(vreinterpretq_f32_u32(words), scale);
    const uint32x4_t has_steps = vcaltq_f32(scaled, vdupq_n_f32(32767.5f));
    const float32x4_t value = vmulq_n_f32(vcvtq_f32_s32(vcvtnq_s32_f32(scaled)), step); /* half to even */
    return vbslq_u32(has_steps, vreinterpretq_u32_f32(value), words);
}

void sn_bounded_roundtrip_neon(int k, const uint8_t *words, size_t count, uint8_t *out)
{
    const float scale = power_of_two(k - 1), step = power_of_two(1 - k);
    for (; count >= SN_BURST_WORDS; count -= SN_BURST_WORDS) {
        const uint32x4_t low = sn_load_quad(words), high = sn_load_quad(words + 16);
        sn_store_quad(out, roundtrip_quad(low, scale, step));
        sn_store_quad(out + 16, roundtrip_quad(high, scale, step));
        words += 4 * SN_BURST_WORDS;
        out += 4 * SN_BURST_WORDS;
    }
    sn_bounded_roundtrip(k, words, count, out);
}
#endif
