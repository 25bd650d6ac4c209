/* Codec 5 (rht.h): the scalar reference, for blocks of any size. SIMD kernels are tested against these functions. */
#include "codecs/rht.h"

#include "codecs/kernels.h"

/* Walsh-Hadamard transform of `m` floats, in place. */
static SN_INLINE void transform(float *block, unsigned m)
{
    for (unsigned h = 1; h < m; h *= 2)
        for (unsigned group = 0; group < m; group += 2 * h)
            for (unsigned i = group; i < group + h; i++) {
                const float a = block[i], b = block[i + h];
                block[i] = a + b;
                block[i + h] = a - b;
            }
}

static void flip_signs(float *block, unsigned m)
{
    for (unsigned i = 0; i < m; i++)
        block[i] = sn_float_of(sn_bits_of(block[i]) ^ sn_rht_signs[i]);
}

/* Returns 2^-half, half up to 4. */
static float halved(unsigned half)
{
    return sn_float_of((127 - half) << 23);
}

/* Returns j where m = 2^j. */
static unsigned log_of(unsigned m)
{
    return (unsigned)__builtin_ctz(m);
}

static int is_transformed(const uint8_t *words, unsigned m)
{
    uint32_t huge = 0;
    for (unsigned i = 0; i < m; i++)
        huge |= (sn_load32(words + 4 * i) >> 23 & 0xff) >= 0xf0;
    return !huge;
}

/* Computes a block's coefficients. Returns its scale, or SN_RHT_AS_IT_IS. */
static uint32_t coefficients(const uint8_t *words, unsigned m, float *block)
{
    if (!is_transformed(words, m))
        return SN_RHT_AS_IT_IS;
    uint32_t greatest = 0;
    memcpy(block, words, 4 * m);
    flip_signs(block, m);
    transform(block, m);
    for (unsigned i = 0; i < m; i++) {
        block[i] *= halved(log_of(m) / 2);
        const uint32_t magnitude = sn_bits_of(block[i]) & 0x7fffffff;
        greatest = greatest > magnitude ? greatest : magnitude;
    }
    return sn_rht_scale(greatest);
}

/* Computes the codes of coefficients: index, and the sign as the highest of `b` bits. */
static void quantise(const float *block, unsigned m, uint32_t scale, int b, uint8_t *codes)
{
    const unsigned thresholds = (1u << (b - 1)) - 1;
    const float s = sn_float_of(scale << 16);
    for (unsigned i = 0; i < m; i++)
        codes[i] = (uint8_t)((block[i] < 0) << (b - 1));
    for (unsigned t = 0; t < thresholds; t++) {
        const float threshold = s * sn_rht_thresholds[b - SN_RHT_FEWEST_BITS][t];
        for (unsigned i = 0; i < m; i++)
            codes[i] = (uint8_t)(codes[i] + (sn_float_of(sn_bits_of(block[i]) & 0x7fffffff) >= threshold));
    }
}

/* Computes the words of codes. */
static void restore(const uint8_t *codes, unsigned m, uint32_t scale, int b, uint8_t *words)
{
    const unsigned half = 1u << (b - 1);
    const float s = sn_float_of(scale << 16);
    float block[SN_RHT_BLOCK_WORDS], values[2 * SN_RHT_MOST_LEVELS];
    for (unsigned i = 0; i < half; i++) {
        values[i] = sn_rht_levels[b - SN_RHT_FEWEST_BITS][i] * s;
        values[i + half] = -values[i];
    }
    for (unsigned i = 0; i < m; i++)
        block[i] = values[codes[i]];
    transform(block, m);
    for (unsigned i = 0; i < m; i++)
        block[i] *= halved((log_of(m) + 1) / 2);
    flip_signs(block, m);
    if (scale >= SN_RHT_SAFE_SCALE) /* no encoder's: machines give NaNs other signs */
        for (unsigned i = 0; i < m; i++)
            block[i] = block[i] == block[i] ? block[i] : sn_float_of(0x7fc00000);
    memcpy(words, block, 4 * m);
}

uint8_t *sn_rht_put(uint8_t *out, int b, const uint8_t *words, unsigned m)
{
    float block[SN_RHT_BLOCK_WORDS];
    uint8_t codes[SN_RHT_BLOCK_WORDS];
    const uint32_t scale = coefficients(words, m, block);
    sn_store16(out, (uint16_t)scale);
    out += SN_RHT_SCALE_BYTES;
    if (scale == SN_RHT_ZERO)
        return out;
    if (scale == SN_RHT_AS_IT_IS) {
        memcpy(out, words, 4 * m);
        return out + 4 * m;
    }
    quantise(block, m, scale, b, codes);
    return sn_pack_codes(out, codes, m, b);
}

const uint8_t *sn_rht_take(const uint8_t *in, const uint8_t *end, int b, uint8_t *words, unsigned m)
{
    if (end - in < SN_RHT_SCALE_BYTES)
        return NULL;
    const uint32_t scale = sn_load16(in);
    const ptrdiff_t size = scale == SN_RHT_ZERO ? 0 : scale == SN_RHT_AS_IT_IS ? 4 * (int)m : (int)m / 8 * b;
    in += SN_RHT_SCALE_BYTES;
    if (end - in < size || (scale >= SN_RHT_MALFORMED && scale != SN_RHT_AS_IT_IS))
        return NULL;
    if (scale == SN_RHT_ZERO) {
        memset(words, 0, 4 * m);
    } else if (scale == SN_RHT_AS_IT_IS) {
        memcpy(words, in, 4 * m);
    } else {
        uint8_t codes[SN_RHT_BLOCK_WORDS];
        sn_unpack_codes(in, codes, m, b);
        restore(codes, m, scale, b, words);
    }
    return in + size;
}

void sn_rht_round(int b, uint8_t *words, unsigned m)
{
    float block[SN_RHT_BLOCK_WORDS];
    uint8_t codes[SN_RHT_BLOCK_WORDS];
    const uint32_t scale = coefficients(words, m, block);
    if (scale == SN_RHT_ZERO) {
        memset(words, 0, 4 * m);
    } else if (scale != SN_RHT_AS_IT_IS) {
        quantise(block, m, scale, b, codes);
        restore(codes, m, scale, b, words);
    }
}

static uint8_t *put_block(uint8_t *out, int b, const uint8_t *words)
{
    uint8_t copy[SN_RHT_BLOCK_BYTES]; /* an application may change the words meanwhile */
    memcpy(copy, words, sizeof copy);
    return sn_rht_put(out, b, copy, SN_RHT_BLOCK_WORDS);
}

static const uint8_t *take_block(const uint8_t *in, const uint8_t *end, int b, uint8_t *words)
{
    return sn_rht_take(in, end, b, words, SN_RHT_BLOCK_WORDS);
}

static void round_block(int b, const uint8_t *words, uint8_t *out)
{
    memmove(out, words, SN_RHT_BLOCK_BYTES);
    sn_rht_round(b, out, SN_RHT_BLOCK_WORDS);
}

size_t sn_rht_encode(int b, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                     size_t *consumed)
{
    (void)first;
    return sn_rht_encode_blocks(put_block, b, words, count, out, capacity, consumed);
}

ptrdiff_t sn_rht_decode(int b, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    return sn_rht_decode_blocks(take_block, b, body, length, words, count);
}

void sn_rht_roundtrip(int b, const uint8_t *words, size_t count, uint8_t *out)
{
    sn_rht_round_blocks(round_block, b, words, count, out);
}

/* Returns the blocks of a body, short ones included. */
static size_t blocks_of(size_t count)
{
    const size_t rest = count % SN_RHT_BLOCK_WORDS / SN_RHT_LEAST_BLOCK; /* a bit for each short block */
    return count / SN_RHT_BLOCK_WORDS + (size_t)__builtin_popcountll(rest);
}

size_t sn_rht_least(int b, size_t count)
{
    (void)b;
    return SN_RHT_SCALE_BYTES * blocks_of(count) + 4 * (count % SN_RHT_LEAST_BLOCK);
}

size_t sn_rht_bound(int b, size_t count)
{
    (void)b;
    return SN_RHT_SCALE_BYTES * blocks_of(count) + 4 * count;
}

sn_rht_parts sn_rht_parts_of(int bits)
{
    const int width = bits - SN_RHT_FEWEST_BITS;
    return (sn_rht_parts){sn_rht_levels[width], sn_rht_thresholds[width], sn_rht_signs};
}
