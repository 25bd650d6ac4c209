/* Codec 3: block floating point after Ma et al. (2022): 16 words share the largest exponent among them. q = round(|x| /
   step), half to even, with step = 2^(E - 127 - (M - 1)). Added to 2^23 steps, a magnitude below 2^M steps is rounded
   to a whole number of them, which is then the sum's low mantissa bits. Where the sum would leave the range of
   exponents, or a denormal would be an operand or result (which a process may have configured to flush), integers are
   used instead. q is at most 2^M - 1, so that a block's largest word keeps its exponent and encodes again to the same
   bits. This is the scalar reference: SIMD kernels are tested against these functions. */
#include "codecs/kernels.h"
#include "codecs/lanes.h"
#include "codecs/coding_blocks.h"

enum { BLOCK_WORDS = SN_CODING_BLOCK_WORDS, INFINITE = 255, BLOCK_BOUND = 1 + 4 * BLOCK_WORDS };

/* Returns the largest exponent field of a block. */
static SN_INLINE uint32_t shared_exponent(const uint32_t *lanes)
{
    uint32_t greatest = 0;
    for (unsigned i = 0; i < BLOCK_WORDS; i++) {
        const uint32_t exponent = lanes[i] >> 23 & 0xff;
        greatest = greatest > exponent ? greatest : exponent;
    }
    return greatest;
}

/* Returns round(magnitude / step), by integers. */
static uint32_t rounded(uint32_t magnitude, uint32_t shared, uint32_t m)
{
    const uint32_t exponent = magnitude >> 23;
    const uint32_t mantissa = (magnitude & 0x7fffff) | (uint32_t)(exponent != 0) << 23;
    const uint32_t shift = 24 - m + shared - (exponent ? exponent : 1); /* at least 9, as m is at most 15 */
    if (shift > 24)
        return 0;
    const uint32_t half = 1u << (shift - 1), q = mantissa >> shift, rest = mantissa & (2 * half - 1);
    return q + (rest > half || (rest == half && (q & 1)));
}

/* Computes the codes of a block whose words are finite and not all denormal: sign and q. */
static SN_INLINE void quantise(uint32_t *lanes, uint32_t shared, uint32_t m)
{
    const int32_t most = (1 << m) - 1;
    int32_t q[BLOCK_WORDS];
    if (shared > m && shared + 24 - m < INFINITE) {
        const uint32_t origin = (shared + 24 - m) << 23;
        for (unsigned i = 0; i < BLOCK_WORDS; i++)
            q[i] = (int32_t)(sn_bits_of(sn_float_of(lanes[i] & 0x7fffffff) + sn_float_of(origin)) - origin);
    } else {
        for (unsigned i = 0; i < BLOCK_WORDS; i++)
            q[i] = (int32_t)rounded(lanes[i] & 0x7fffffff, shared, m);
    }
    for (unsigned i = 0; i < BLOCK_WORDS; i++) {
        const int32_t kept = q[i] < most ? q[i] : most;
        lanes[i] = (uint32_t)kept | (lanes[i] >> 31 << m & sn_mask(kept > 0));
    }
}

/* Returns q * step, by integers. */
static uint32_t scaled(uint32_t q, uint32_t shared, uint32_t m)
{
    const uint32_t bits = sn_bits_of((float)(int32_t)q);
    const int32_t exponent = (int32_t)(bits >> 23) - 126 + (int32_t)shared - (int32_t)m;
    if (q == 0)
        return 0;
    return exponent > 0 ? (bits & 0x7fffff) | (uint32_t)exponent << 23 : q << (23 + shared - m);
}

/* Computes the words of a block's codes. No encoder writes a sign at q = 0; it decodes to +0.0. */
static SN_INLINE void restore(uint32_t *lanes, uint32_t shared, uint32_t m)
{
    const uint32_t mask = (1u << m) - 1;
    uint32_t magnitude[BLOCK_WORDS];
    if (shared >= m) {
        const float step = sn_float_of((shared - m + 1) << 23);
        for (unsigned i = 0; i < BLOCK_WORDS; i++)
            magnitude[i] = sn_bits_of((float)(int32_t)(lanes[i] & mask) * step);
    } else {
        for (unsigned i = 0; i < BLOCK_WORDS; i++)
            magnitude[i] = scaled(lanes[i] & mask, shared, m);
    }
    for (unsigned i = 0; i < BLOCK_WORDS; i++)
        lanes[i] = magnitude[i] | (lanes[i] >> m << 31 & sn_mask(magnitude[i] != 0));
}

static SN_INLINE void encode_coding_block(sn_writer *writer, int m, const uint8_t *words, unsigned count)
{
    uint32_t lanes[BLOCK_WORDS];
    sn_load_coding_block(lanes, words, count);
    const uint32_t shared = shared_exponent(lanes);
    *writer->out++ = (uint8_t)shared;
    if (shared == 0)
        return;
    if (shared == INFINITE) {
        memcpy(writer->out, lanes, sizeof lanes);
        writer->out += sizeof lanes;
        return;
    }
    quantise(lanes, shared, (uint32_t)m);
    for (unsigned i = 0; i < BLOCK_WORDS; i += SN_LANES)
        writer->out = sn_pack_lanes(writer->out, lanes + i, (unsigned)m + 1);
}

size_t sn_bfp_encode(int m, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                     size_t *consumed)
{
    const sn_block_codec codec = {encode_coding_block, m};
    return sn_encode_coding_blocks(codec, words, count, first, out, capacity, consumed);
}

/* Reads the lanes of a block behind its exponent. Returns their end, or NULL if they are truncated. */
static SN_INLINE const uint8_t *read_block(const uint8_t *in, const uint8_t *end, uint32_t shared, int m,
                                           uint32_t *lanes)
{
    const ptrdiff_t size = shared == 0 ? 0 : shared == INFINITE ? 4 * BLOCK_WORDS : 2 * (m + 1);
    if (end - in < size)
        return NULL;
    if (shared == 0) {
        memset(lanes, 0, 4 * BLOCK_WORDS);
    } else if (shared == INFINITE) {
        memcpy(lanes, in, 4 * BLOCK_WORDS);
    } else {
        const uint8_t *const half = sn_unpack_lanes(in, lanes, (unsigned)m + 1);
        sn_unpack_lanes(half, lanes + SN_LANES, (unsigned)m + 1);
    }
    return in + size;
}

ptrdiff_t sn_bfp_decode(int m, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const uint8_t *in = body, *const end = body + length;
    while (count) {
        const unsigned some = count < BLOCK_WORDS ? (unsigned)count : BLOCK_WORDS;
        uint32_t lanes[BLOCK_WORDS];
        if (in == end)
            return -1;
        const uint32_t shared = *in++;
        in = read_block(in, end, shared, m, lanes);
        if (!in || (some < BLOCK_WORDS && !sn_padding_is_zero(lanes, some, BLOCK_WORDS)))
            return -1;
        if (shared != INFINITE)
            restore(lanes, shared, (uint32_t)m);
        sn_store_coding_block(words, lanes, some);
        words += 4 * (size_t)some;
        count -= some;
    }
    return in - body;
}

void sn_bfp_roundtrip(int m, const uint8_t *words, size_t count, uint8_t *out)
{
    uint32_t lanes[BLOCK_WORDS];
    while (count) {
        const unsigned some = count < BLOCK_WORDS ? (unsigned)count : BLOCK_WORDS;
        sn_load_coding_block(lanes, words, some);
        const uint32_t shared = shared_exponent(lanes);
        if (shared == 0) {
            memset(lanes, 0, sizeof lanes);
        } else if (shared != INFINITE) {
            quantise(lanes, shared, (uint32_t)m);
            restore(lanes, shared, (uint32_t)m);
        }
        sn_store_coding_block(out, lanes, some);
        words += 4 * (size_t)some;
        out += 4 * (size_t)some;
        count -= some;
    }
}

size_t sn_bfp_least(int m, size_t count)
{
    (void)m;
    return count / BLOCK_WORDS + (count % BLOCK_WORDS != 0);
}

size_t sn_bfp_bound(int m, size_t count)
{
    return BLOCK_BOUND * sn_bfp_least(m, count);
}
