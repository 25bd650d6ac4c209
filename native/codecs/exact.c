/* Codec 6 (exact.h): the scalar reference. */
#include "codecs/exact.h"

#include "codecs/kernels.h"

/* Splits the elements of a block into symbols and the bytes below. Returns the number of elements. */
static unsigned split(int bits, const uint8_t *words, unsigned count, uint8_t *symbols, uint8_t *below)
{
    if (bits == 32) {
        for (unsigned i = 0; i < count; i++) {
            const uint32_t word = sn_load32(words + 4 * i), rotated = word << 1 | word >> 31;
            symbols[i] = (uint8_t)(rotated >> 24);
            below[3 * i] = (uint8_t)rotated;
            below[3 * i + 1] = (uint8_t)(rotated >> 8);
            below[3 * i + 2] = (uint8_t)(rotated >> 16);
        }
        return count;
    }
    for (unsigned i = 0; i < 2 * count; i++) {
        const uint32_t half = sn_load16(words + 2 * i), rotated = half << 1 | half >> 15;
        symbols[i] = (uint8_t)(rotated >> 8);
        below[i] = (uint8_t)rotated;
    }
    return 2 * count;
}

static void join(int bits, uint8_t *words, unsigned count, const uint8_t *symbols, const uint8_t *below)
{
    if (bits == 32) {
        for (unsigned i = 0; i < count; i++) {
            const uint32_t rotated = (uint32_t)symbols[i] << 24 | (uint32_t)below[3 * i + 2] << 16 |
                                     (uint32_t)below[3 * i + 1] << 8 | below[3 * i];
            sn_store32(words + 4 * i, rotated >> 1 | rotated << 31);
        }
        return;
    }
    for (unsigned i = 0; i < 2 * count; i++) {
        const uint32_t rotated = (uint32_t)symbols[i] << 8 | below[i];
        sn_store16(words + 2 * i, (uint16_t)(rotated >> 1 | rotated << 15));
    }
}

static unsigned count_of(const void *counts, uint8_t symbol)
{
    return ((const uint16_t *)counts)[symbol];
}

static uint8_t base_of(const uint8_t *symbols, unsigned elements)
{
    uint16_t counts[256] = {0};
    uint8_t greatest = 0;
    for (unsigned i = 0; i < elements; i++) {
        counts[symbols[i]]++;
        greatest = greatest > symbols[i] ? greatest : symbols[i];
    }
    return sn_exact_base(count_of, counts, greatest);
}

/* Returns the second code of a symbol that is not among the three. */
static unsigned second_code(uint8_t symbol, uint8_t base)
{
    const unsigned distance = (uint8_t)(base - symbol);
    return distance == 255 ? 0 : distance < 9 ? distance - 2 : 7;
}

static void set_bit(uint8_t *plane, unsigned i, unsigned bit)
{
    plane[i / 8] = (uint8_t)(plane[i / 8] | bit << i % 8);
}

static unsigned bit_of(const uint8_t *plane, unsigned i)
{
    return plane[i / 8] >> i % 8 & 1;
}

uint8_t *sn_exact_put(uint8_t *out, int bits, const uint8_t *words, unsigned count)
{
    uint8_t symbols[SN_EXACT_MOST_ELEMENTS], below[3 * SN_EXACT_BLOCK_WORDS], others[SN_EXACT_MOST_ELEMENTS];
    const unsigned elements = split(bits, words, count, symbols, below), plane = (elements + 7) / 8;
    const uint8_t base = base_of(symbols, elements < SN_EXACT_SEEN ? elements : SN_EXACT_SEEN);
    unsigned escaped = 0;
    uint8_t *at = out;
    *at++ = base;
    memset(at, 0, 2 * plane);
    for (unsigned i = 0; i < elements; i++) {
        const unsigned distance = (uint8_t)(base - symbols[i]), code = distance < 3 ? distance : 3;
        set_bit(at, i, code & 1);
        set_bit(at + plane, i, code >> 1);
        if (code == 3)
            others[escaped++] = symbols[i];
    }
    at += 2 * plane;
    const unsigned second = (escaped + 7) / 8;
    uint8_t *raw = at + 3 * second;
    memset(at, 0, 3 * second);
    for (unsigned i = 0; i < escaped; i++) {
        const unsigned code = second_code(others[i], base);
        for (unsigned bit = 0; bit < 3; bit++)
            set_bit(at + bit * second, i, code >> bit & 1);
        if (code == 7)
            *raw++ = others[i];
    }
    const size_t rest = 4 * (size_t)count - elements;
    memcpy(raw, below, rest);
    return sn_exact_shorter(out, raw + rest, words, count);
}

/* Returns whether the bits of a plane behind the first `count` are zero. */
static int ends_in_zeros(const uint8_t *plane, unsigned count)
{
    return count % 8 == 0 || plane[count / 8] >> count % 8 == 0;
}

const uint8_t *sn_exact_take(const uint8_t *in, const uint8_t *end, int bits, uint8_t *words, unsigned count)
{
    uint8_t symbols[SN_EXACT_MOST_ELEMENTS];
    const unsigned elements = bits == 32 ? count : 2 * count, plane = (elements + 7) / 8;
    unsigned escaped = 0, found = 0;
    if (in == end)
        return NULL;
    const uint8_t base = *in++;
    if (base == SN_EXACT_AS_IT_IS) {
        if ((size_t)(end - in) < 4 * count)
            return NULL;
        memcpy(words, in, 4 * count);
        return in + 4 * count;
    }
    if ((size_t)(end - in) < 2 * plane || !ends_in_zeros(in, elements) || !ends_in_zeros(in + plane, elements))
        return NULL;
    for (unsigned i = 0; i < elements; i++)
        escaped += bit_of(in, i) & bit_of(in + plane, i);
    const uint8_t *const seconds = in + 2 * plane;
    const unsigned second = (escaped + 7) / 8;
    if ((size_t)(end - seconds) < 3 * second)
        return NULL;
    const uint8_t *raw = seconds + 3 * second;
    for (unsigned bit = 0; bit < 3; bit++)
        if (!ends_in_zeros(seconds + bit * second, escaped))
            return NULL;
    for (unsigned i = 0; i < elements; i++) {
        unsigned distance = bit_of(in, i) | bit_of(in + plane, i) << 1;
        symbols[i] = (uint8_t)(base - distance);
        if (distance < 3)
            continue;
        const unsigned code = bit_of(seconds, found) | bit_of(seconds + second, found) << 1 |
                              bit_of(seconds + 2 * second, found) << 2;
        found++;
        if (code < 7) {
            symbols[i] = (uint8_t)(base - (code ? code + 2 : 255));
        } else {
            if (raw == end)
                return NULL;
            symbols[i] = *raw++;
        }
    }
    const size_t rest = 4 * (size_t)count - elements;
    if ((size_t)(end - raw) < rest)
        return NULL;
    join(bits, words, count, symbols, raw);
    return raw + rest;
}

size_t sn_exact_encode(int bits, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                       size_t *consumed)
{
    (void)first;
    return sn_exact_encode_blocks(sn_exact_put, bits, words, count, out, capacity, consumed);
}

ptrdiff_t sn_exact_decode(int bits, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    return sn_exact_decode_blocks(sn_exact_take, bits, body, length, words, count);
}

void sn_exact_roundtrip(int bits, const uint8_t *words, size_t count, uint8_t *out)
{
    (void)bits;
    if (count)
        memmove(out, words, 4 * count);
}

size_t sn_exact_least(int bits, size_t count)
{
    const size_t rest = count % SN_EXACT_BLOCK_WORDS, whole = count / SN_EXACT_BLOCK_WORDS, planes = bits == 32 ? 1 : 2;
    const size_t of_rest = rest ? 1 + 2 * ((planes * rest + 7) / 8) + (4 - planes) * rest : 0;
    const size_t of_block = 1 + SN_EXACT_BLOCK_WORDS / 4 * planes + (4 - planes) * SN_EXACT_BLOCK_WORDS;
    const size_t as_it_is = rest ? 1 + 4 * rest : 0;
    return whole * of_block + (of_rest < as_it_is ? of_rest : as_it_is);
}

size_t sn_exact_bound(int bits, size_t count)
{
    (void)bits;
    return 4 * count + count / SN_EXACT_BLOCK_WORDS + (count % SN_EXACT_BLOCK_WORDS != 0);
}
