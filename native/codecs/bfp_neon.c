/* Codec 3 with NEON, bit for bit as bfp.c, which explains the arithmetic and handles short blocks and those at the ends
   of the range of exponents, which need integers. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_NEON
#include "codecs/lanes_neon.h"

enum { INFINITE = 255, BLOCK_BYTES = 4 * SN_CODING_BLOCK_WORDS };

static SN_INLINE float power_of_two(uint32_t exponent_field)
{
    return sn_float_of(exponent_field << 23);
}

static SN_INLINE float32x4_t magnitudes(uint32x4_t words)
{
    return vabsq_f32(vreinterpretq_f32_u32(words));
}

/* Returns the largest exponent field of a block. */
static SN_INLINE uint32_t shared_exponent(const sn_quads *block)
{
    uint32x4_t greatest = vdupq_n_u32(0);
    for (unsigned i = 0; i < 4; i++)
        greatest = vmaxq_u32(greatest, vreinterpretq_u32_f32(magnitudes(block->quad[i])));
    return vmaxvq_u32(greatest) >> 23;
}

/* Returns whether floats quantise, and so restore, a block of this exponent. */
static SN_INLINE int goes_by_floats(uint32_t shared, uint32_t m)
{
    return shared > m && shared + 24 - m < INFINITE;
}

/* Returns the exponent field of 2^23 steps. */
static SN_INLINE uint32_t origin_of(uint32_t shared, uint32_t m)
{
    return shared + 24 - m;
}

/* Computes the codes of a block, at the top of their lanes; signs only where q is not 0. */
static SN_INLINE void quantise(sn_quads *block, uint32_t shared, uint32_t m)
{
    const uint32_t origin = origin_of(shared, m);
    for (unsigned i = 0; i < 4; i++) {
        const uint32x4_t words = block->quad[i];
        const float32x4_t sum = vaddq_f32(magnitudes(words), vdupq_n_f32(power_of_two(origin)));
        const uint32x4_t rounded = vsubq_u32(vreinterpretq_u32_f32(sum), vdupq_n_u32(origin << 23));
        const uint32x4_t q = vminq_u32(rounded, vdupq_n_u32((1u << m) - 1));
        const uint32x4_t sign = vandq_u32(vtstq_u32(q, q), vdupq_n_u32(0x80000000));
        block->quad[i] = vbslq_u32(sign, words, vshlq_u32(q, vdupq_n_s32(31 - (int32_t)m)));
    }
}

/* Computes the words of codes: q is 2^-30 times the lane without its sign, so its unit is 2^(shared - 127). Adding +0.0
   removes the sign of zeros. */
static SN_INLINE void restore(sn_quads *block, uint32_t shared)
{
    const float32x4_t unit = vdupq_n_f32(power_of_two(shared));
    for (unsigned i = 0; i < 4; i++) {
        const uint32x4_t sign = vdupq_n_u32(0x80000000), codes = block->quad[i];
        const float32x4_t value = vcvtq_n_f32_u32(vbicq_u32(codes, sign), 30);
        const uint32x4_t with_sign = vbslq_u32(sign, codes, vreinterpretq_u32_f32(value));
        block->quad[i] =
            vreinterpretq_u32_f32(vfmaq_f32(vdupq_n_f32(0), vreinterpretq_f32_u32(with_sign), unit));
    }
}

/* Encodes a block; may touch SN_CODING_BLOCK_BOUND bytes. Returns its end. */
static SN_INLINE uint8_t *put_block(uint8_t *out, int m, const uint8_t *words, sn_width_kind kind)
{
    sn_quads block = sn_load_quads(words);
    const uint32_t shared = shared_exponent(&block);
    if (!goes_by_floats(shared, (uint32_t)m)) {
        size_t consumed;
        return out + sn_bfp_encode(m, words, SN_CODING_BLOCK_WORDS, SN_CODING_BLOCK_WORDS, out,
                                   SN_CODING_BLOCK_BOUND, &consumed);
    }
    *out++ = (uint8_t)shared;
    quantise(&block, shared, (uint32_t)m);
    sn_pack_quads(out, block, (unsigned)m + 1, kind);
    return out + 2 * (m + 1);
}

static SN_INLINE void encode_coding_block(sn_writer *writer, int m, const uint8_t *words, unsigned count)
{
    uint32_t whole[SN_CODING_BLOCK_WORDS];
    if (count < SN_CODING_BLOCK_WORDS) {
        sn_load_coding_block(whole, words, count);
        words = (const uint8_t *)whole;
    }
    writer->out = put_block(writer->out, m, words, sn_kind_of_width((unsigned)m + 1));
}

/* Encodes whole blocks while each has all the space that it may touch. */
static SN_INLINE sn_progress encode_whole(sn_progress at, int m, const uint8_t *words, size_t count,
                                          const uint8_t *end, sn_width_kind kind)
{
    while (count - at.done >= SN_CODING_BLOCK_WORDS && end - at.writer.out >= SN_CODING_BLOCK_BOUND) {
        at.before = at.writer;
        at.writer.out = put_block(at.writer.out, m, words + 4 * at.done, kind);
        at.done += SN_CODING_BLOCK_WORDS;
    }
    return at;
}

size_t sn_bfp_encode_neon(int m, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                          size_t *consumed)
{
    uint8_t *const end = out + capacity;
    sn_progress at = sn_start(out);
    at = sn_kind_of_width((unsigned)m + 1) == SN_BYTES ? encode_whole(at, m, words, count, end, SN_BYTES)
                                                       : encode_whole(at, m, words, count, end, SN_NARROW);
    const sn_block_codec codec = {encode_coding_block, m};
    return sn_finish_coding_blocks(codec, at, words, count, first, end, consumed);
}

/* Decodes a block whose exponent is at `in`; may touch 1 + BLOCK_BYTES bytes. Returns its end. */
static SN_INLINE const uint8_t *take_block(const uint8_t *in, int m, uint8_t *words, sn_width_kind kind)
{
    const uint32_t shared = *in;
    if (shared < (uint32_t)m || shared == INFINITE)
        return in + sn_bfp_decode(m, in, 1 + BLOCK_BYTES, words, SN_CODING_BLOCK_WORDS);
    sn_quads block = sn_unpack_quads(in + 1, (unsigned)m + 1, kind);
    restore(&block, shared);
    sn_store_quads(words, block);
    return in + 1 + 2 * (m + 1);
}

typedef struct {
    const uint8_t *in;
    size_t words;
} decoded;

/* Decodes whole blocks while all bytes that each may touch are readable. */
static SN_INLINE decoded decode_whole(const uint8_t *in, const uint8_t *end, int m, uint8_t *words, size_t count,
                                      sn_width_kind kind)
{
    decoded at = {in, 0};
    for (; count - at.words >= SN_CODING_BLOCK_WORDS && end - at.in >= 1 + BLOCK_BYTES; at.words += SN_CODING_BLOCK_WORDS)
        at.in = take_block(at.in, m, words + 4 * at.words, kind);
    return at;
}

ptrdiff_t sn_bfp_decode_neon(int m, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const uint8_t *const end = body + length;
    const decoded at = sn_kind_of_width((unsigned)m + 1) == SN_BYTES
                           ? decode_whole(body, end, m, words, count, SN_BYTES)
                           : decode_whole(body, end, m, words, count, SN_NARROW);
    const ptrdiff_t rest =
        sn_bfp_decode(m, at.in, (size_t)(end - at.in), words + 4 * at.words, count - at.words);
    return rest < 0 ? -1 : at.in - body + rest;
}

/* Rounds the words of a block to steps, the last one limited to M bits. */
static SN_INLINE void round_block(sn_quads *block, uint32_t shared, uint32_t m)
{
    const uint32_t origin = origin_of(shared, m);
    const float step = power_of_two(shared - m + 1), most = (float)((1 << m) - 1) * step;
    const float32x4_t base = vdupq_n_f32(power_of_two(origin));
    for (unsigned i = 0; i < 4; i++) {
        const uint32x4_t words = block->quad[i];
        const float32x4_t steps = vsubq_f32(vaddq_f32(magnitudes(words), base), base);
        const uint32x4_t kept = vreinterpretq_u32_f32(vminq_f32(steps, vdupq_n_f32(most)));
        const uint32x4_t with_sign = vbslq_u32(vdupq_n_u32(0x80000000), words, kept);
        block->quad[i] = vreinterpretq_u32_f32(vaddq_f32(vreinterpretq_f32_u32(with_sign), vdupq_n_f32(0)));
    }
}

void sn_bfp_roundtrip_neon(int m, const uint8_t *words, size_t count, uint8_t *out)
{
    for (; count >= SN_CODING_BLOCK_WORDS; count -= SN_CODING_BLOCK_WORDS) {
        sn_quads block = sn_load_quads(words);
        const uint32_t shared = shared_exponent(&block);
        if (goes_by_floats(shared, (uint32_t)m)) {
            round_block(&block, shared, (uint32_t)m);
            sn_store_quads(out, block);
        } else {
            sn_bfp_roundtrip(m, words, SN_CODING_BLOCK_WORDS, out);
        }
        words += BLOCK_BYTES;
        out += BLOCK_BYTES;
    }
    sn_bfp_roundtrip(m, words, count, out);
}
#endif
