/* Codec 1 with NEON, bit for bit as inceptionn.c, which explains the arithmetic and handles the ends too short for
   whole registers. Magnitudes are in fixed point of 31 bits here, so that the sign is beside them at the top of the
   lane, and a vector is its first 8 or 16 bits. Tags depend on exponents only, which are compared as bytes, 16 at
   once. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_NEON
#include "codecs/bursts_neon.h"

enum { ONE_EXPONENT = 127 };

/* Exponent fields from which a word has 8 or 16 bits. */
static inline uint8_t exponent_from_8(int k)
{
    return (uint8_t)(ONE_EXPONENT - k);
}

static inline uint8_t exponent_from_16(int k)
{
    return (uint8_t)(ONE_EXPONENT - k + (k + 1) / 2);
}

/* Returns the largest magnitude without a vector. */
static inline int32_t largest_zero(int k)
{
    return (exponent_from_8(k) << 23) - 1;
}

/* Returns a mask of the words sent unchanged. */
static SN_INLINE uint32x4_t is_32(uint32x4_t words)
{
    const uint32_t one = (uint32_t)ONE_EXPONENT << 23;
    return vcgeq_u32(vreinterpretq_u32_f32(sn_magnitudes(words)), vdupq_n_u32(one));
}

/* Returns the vectors of four words in full length; packing omits the ends of those of 8 or 16 bits. */
static SN_INLINE uint32x4_t split_quad(uint32x4_t words)
{
    const uint32x4_t fixed = vcvtq_n_u32_f32(sn_magnitudes(words), 31);
    return vbslq_u32(is_32(words), words, sn_with_signs(fixed, words));
}

static SN_INLINE uint8x16_t exponents_of(const uint32x4_t *quad)
{
    const uint16x8_t low = sn_odd_halves(quad[0], quad[1]), high = sn_odd_halves(quad[2], quad[3]);
    return sn_odd_bytes(vshlq_n_u16(low, 1), vshlq_n_u16(high, 1));
}

static SN_INLINE sn_split_coding_block split_coding_block(int k, const uint8_t *words)
{
    sn_split_coding_block parts;
    for (unsigned i = 0; i < SN_QUADS; i++)
        parts.quad[i] = sn_load_quad(words + 16 * i);
    const uint8x16_t exponents = exponents_of(parts.quad);
    const uint8x16_t from_8 = vcgeq_u8(exponents, vdupq_n_u8(exponent_from_8(k)));
    const uint8x16_t from_16 = vcgeq_u8(exponents, vdupq_n_u8(exponent_from_16(k)));
    const uint8x16_t from_32 = vcgeq_u8(exponents, vdupq_n_u8(ONE_EXPONENT));
    parts.tags = sn_join_tags(vaddq_u8(vaddq_u8(from_8, from_16), from_32));
    for (unsigned i = 0; i < SN_QUADS; i++)
        parts.quad[i] = split_quad(parts.quad[i]);
    return parts;
}

static SN_INLINE void encode_coding_block(sn_writer *writer, int k, const uint8_t *words, unsigned count)
{
    uint32_t whole[SN_CODING_BLOCK_WORDS];
    if (count < SN_CODING_BLOCK_WORDS) {
        sn_load_coding_block(whole, words, count);
        words = (const uint8_t *)whole;
    }
    const sn_split_coding_block parts = split_coding_block(k, words);
    writer->out = sn_pack_split(writer->out, &parts, 0);
    if (count > SN_BURST_WORDS)
        writer->out = sn_pack_split(writer->out, &parts, 1);
}

size_t sn_inceptionn_encode_neon(int k, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                 size_t capacity, size_t *consumed)
{
    const sn_group_codec codec = {{encode_coding_block, k}, sn_is_zero_group, largest_zero(k), 0};
    return sn_encode_by_groups(codec, words, count, first, out, capacity, consumed);
}

ptrdiff_t sn_inceptionn_decode_neon(int k, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const uint8_t *in = body, *const end = body + length;
    while (count >= SN_BURST_WORDS && end - in >= SN_BURST_BOUND) {
        if (count >= SN_GROUP_WORDS && (sn_load64(in) | sn_load64(in + 8)) == 0) {
            memset(words, 0, 4 * SN_GROUP_WORDS);
            in += 2 * SN_GROUP_BURSTS;
            words += 4 * SN_GROUP_WORDS;
            count -= SN_GROUP_WORDS;
        } else {
            in = sn_decode_burst(in, 0x1p-31f, 0x1p-31f, words);
            words += 4 * SN_BURST_WORDS;
            count -= SN_BURST_WORDS;
        }
    }
    const ptrdiff_t rest = sn_inceptionn_decode(k, in, (size_t)(end - in), words, count);
    return rest < 0 ? -1 : in - body + rest;
}

/* Rounds four words: truncated to 15 or 7 bits of fixed point, zero below the threshold. Conversion truncates towards
   zero, so numbers keep their signs and zeros lose them. */
static SN_INLINE uint32x4_t roundtrip_quad(int k, uint32x4_t words)
{
    const float32x4_t values = vreinterpretq_f32_u32(words);
    const uint32x4_t magnitude = vreinterpretq_u32_f32(sn_magnitudes(words));
    const uint32x4_t from_8 = vcgeq_u32(magnitude, vdupq_n_u32((uint32_t)exponent_from_8(k) << 23));
    const uint32x4_t from_16 = vcgeq_u32(magnitude, vdupq_n_u32((uint32_t)exponent_from_16(k) << 23));
    const int32x4_t of_8 = vshlq_n_s32(vcvtq_n_s32_f32(values, 7), 8), of_16 = vcvtq_n_s32_f32(values, 15);
    const int32x4_t fixed = vandq_s32(vbslq_s32(from_16, of_16, of_8), vreinterpretq_s32_u32(from_8));
    return vbslq_u32(is_32(words), words, vreinterpretq_u32_f32(vcvtq_n_f32_s32(fixed, 15)));
}

void sn_inceptionn_roundtrip_neon(int k, const uint8_t *words, size_t count, uint8_t *out)
{
    for (; count >= SN_BURST_WORDS; count -= SN_BURST_WORDS) {
        const uint32x4_t low = sn_load_quad(words), high = sn_load_quad(words + 16);
        sn_store_quad(out, roundtrip_quad(k, low));
        sn_store_quad(out + 16, roundtrip_quad(k, high));
        words += 4 * SN_BURST_WORDS;
        out += 4 * SN_BURST_WORDS;
    }
    sn_inceptionn_roundtrip(k, words, count, out);
}
#endif
