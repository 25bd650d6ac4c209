/* Codec 7 (mx.h): the scalar reference, by integers, for blocks of any size. SIMD kernels are tested against it. */
#include "codecs/mx.h"

#include "codecs/kernels.h"

enum { INFINITE = 255, IMPLICIT = 1 << 23 };

static const uint32_t INFINITY_WORD = 0x7f800000, NAN_WORD = 0x7fc00000;

/* Returns the scale of words: the exponent of the largest less that of the largest element, but not below 2^-127. */
static uint32_t scale_of(sn_mx_format f, const uint32_t *words, unsigned count)
{
    const uint32_t above = (uint32_t)sn_mx_greatest_exponent(f);
    uint32_t greatest = 0;
    for (unsigned i = 0; i < count; i++) {
        const uint32_t exponent = words[i] >> 23 & 0xff;
        greatest = greatest > exponent ? greatest : exponent;
    }
    return greatest == INFINITE ? SN_MX_NAN : greatest > above ? greatest - above : 0;
}

/* Returns the element nearest to a word divided by the scale. */
static uint32_t element_of(sn_mx_format f, uint32_t word, uint32_t scale)
{
    const uint32_t sign = word >> 31 << (f.bits - 1);
    uint32_t mantissa = word & (IMPLICIT - 1);
    int32_t exponent = (int32_t)(word >> 23 & 0xff);
    if (!exponent && !mantissa)
        return sign;
    if (exponent) {
        mantissa |= IMPLICIT;
    } else {
        const int below = __builtin_clz(mantissa) - 8;
        mantissa <<= below;
        exponent = 1 - below;
    }
    exponent += f.bias - (int32_t)scale;
    const int32_t field = exponent > 1 ? exponent : 1, shift = 23 - (int32_t)f.mantissa + field - exponent;
    if (shift > 24)
        return sign;
    const uint32_t half = 1u << (shift - 1), kept = mantissa >> shift, rest = mantissa & (2 * half - 1);
    const uint32_t rounded = kept + (rest > half || (rest == half && (kept & 1)));
    const uint32_t magnitude = ((uint32_t)(field - 1) << f.mantissa) + rounded;
    return sign | (magnitude < f.most ? magnitude : f.most);
}

/* Returns the word of an element. */
static uint32_t word_of(sn_mx_format f, uint32_t element, uint32_t scale)
{
    const uint32_t sign = element >> (f.bits - 1) << 31, magnitude = element & ((1u << (f.bits - 1)) - 1);
    const uint32_t field = magnitude >> f.mantissa, fraction = magnitude & ((1u << f.mantissa) - 1);
    if (scale == SN_MX_NAN)
        return NAN_WORD;
    if (magnitude > f.most)
        return sign | (f.has_infinity && !fraction ? INFINITY_WORD : NAN_WORD);
    const uint32_t mantissa = fraction | (uint32_t)(field != 0) << f.mantissa;
    if (!mantissa)
        return sign;
    const int32_t unit = (int32_t)(field ? field : 1) - f.bias - (int32_t)f.mantissa + (int32_t)scale - 127;
    const uint32_t bits = sn_bits_of((float)(int32_t)mantissa);
    const int32_t exponent = (int32_t)(bits >> 23) + unit;
    if (exponent >= INFINITE)
        return sign | INFINITY_WORD;
    return sign | (exponent > 0 ? (bits & (IMPLICIT - 1)) | (uint32_t)exponent << 23 : mantissa << (unit + 149));
}

uint8_t *sn_mx_put(uint8_t *out, int parameter, const uint8_t *words, unsigned count)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    uint32_t copy[SN_MX_BLOCK_WORDS], held = 0;
    memcpy(copy, words, 4 * (size_t)count);
    const uint32_t scale = scale_of(f, copy, count);
    *out++ = (uint8_t)scale;
    for (unsigned i = 0, bits = 0; i < count; i++) {
        held |= (scale == SN_MX_NAN ? 0 : element_of(f, copy[i], scale)) << bits;
        bits += f.bits;
        for (; bits >= 8 || (bits && i + 1 == count); bits -= bits < 8 ? bits : 8, held >>= 8)
            *out++ = (uint8_t)held;
    }
    return out;
}

int sn_mx_take(const uint8_t *in, int parameter, uint8_t *words, unsigned count)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const uint32_t scale = *in++, mask = (1u << f.bits) - 1;
    uint32_t held = 0;
    for (unsigned i = 0, bits = 0; i < count; i++, bits -= f.bits, held >>= f.bits) {
        if (bits < f.bits) {
            held |= (uint32_t)*in++ << bits;
            bits += 8;
        }
        sn_store32(words + 4 * (size_t)i, word_of(f, held & mask, scale));
    }
    return held ? -1 : 0;
}

static void put(uint8_t *out, int parameter, const uint8_t *words)
{
    sn_mx_put(out, parameter, words, SN_MX_BLOCK_WORDS);
}

static void take(const uint8_t *in, int parameter, uint8_t *words)
{
    sn_mx_take(in, parameter, words, SN_MX_BLOCK_WORDS);
}

static void round_block(int parameter, const uint8_t *words, uint8_t *out)
{
    sn_mx_round(parameter, words, out, SN_MX_BLOCK_WORDS);
}

SN_MX_KERNELS(, )

size_t sn_mx_size(int parameter, size_t count)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const size_t rest = count % SN_MX_BLOCK_WORDS;
    return count / SN_MX_BLOCK_WORDS * sn_mx_block_size(f, SN_MX_BLOCK_WORDS) + (rest ? sn_mx_block_size(f, rest) : 0);
}
