/* Codec 6: words of 16 or 32 bits without loss. Rotated left by one bit, a bfloat16 or a float32 has its exponent in the
   top byte, its symbol; what is below, mantissa and sign, hardly varies less than noise and is kept as it is. Symbols
   are near each other in most data: of a block of 128 32-bit words, three take two bits, seven more take five, all
   others thirteen. docs/FORMAT.md has the layout. The choice of the three is the same in all implementations. */
#ifndef SOFTNIC_EXACT_H
#define SOFTNIC_EXACT_H
#include <stddef.h>
#include <stdint.h>

#include "words.h"

enum {
    SN_EXACT_BLOCK_WORDS = 128,
    SN_EXACT_BLOCK_BYTES = 4 * SN_EXACT_BLOCK_WORDS,
    SN_EXACT_MOST_ELEMENTS = 2 * SN_EXACT_BLOCK_WORDS,
    SN_EXACT_AS_IT_IS = 0xff,  /* in the place of the base: the words follow unchanged */
    SN_EXACT_BOUND = 1 + 2 * SN_EXACT_MOST_ELEMENTS / 8 + 3 * (SN_EXACT_MOST_ELEMENTS / 8) +
                     SN_EXACT_MOST_ELEMENTS + SN_EXACT_BLOCK_BYTES + 64, /* bytes that encoding a block may touch */
    SN_EXACT_SEEN = 128, /* elements that the base is chosen by */
    SN_EXACT_BASES = 8 /* candidates for the base, from the largest symbol down */
};

/* Encodes a block of `count` (1..128) 32-bit words. May touch SN_EXACT_BOUND bytes. Returns the end. Reads each word once
   before it knows the length, and again only to copy it: an application may change the words meanwhile. */
typedef uint8_t *sn_exact_block_encoder(uint8_t *out, int bits, const uint8_t *words, unsigned count);

/* Decodes such a block. Returns its end, or NULL if it is malformed or ends behind `end`. */
typedef const uint8_t *sn_exact_block_decoder(const uint8_t *in, const uint8_t *end, int bits, uint8_t *words,
                                              unsigned count);

uint8_t *sn_exact_put(uint8_t *out, int bits, const uint8_t *words, unsigned count);
const uint8_t *sn_exact_take(const uint8_t *in, const uint8_t *end, int bits, uint8_t *words, unsigned count);

/* Returns how many of the symbols that the base is chosen by are this one. */
typedef unsigned sn_exact_counter(const void *seen, uint8_t symbol);

/* Returns the base: the symbol for which it and the two below it are most frequent among those seen, the largest of
   several. It is one of SN_EXACT_BASES from the largest symbol down. */
static SN_INLINE uint8_t sn_exact_base(sn_exact_counter *count_of, const void *seen, unsigned greatest)
{
    if (greatest == SN_EXACT_AS_IT_IS)
        greatest--;
    uint8_t base = (uint8_t)greatest;
    unsigned best = 0, left = SN_EXACT_SEEN;
    unsigned one = count_of(seen, base), two = count_of(seen, (uint8_t)(greatest - 1));
    for (unsigned i = 0; i < SN_EXACT_BASES && left > best; i++) { /* no later candidate has more than what is left */
        const unsigned three = count_of(seen, (uint8_t)(greatest - i - 2)), found = one + two + three;
        if (found > best && (uint8_t)(greatest - i) != SN_EXACT_AS_IT_IS) {
            best = found;
            base = (uint8_t)(greatest - i);
        }
        left -= one;
        one = two;
        two = three;
    }
    return base;
}

/* Ends a block whose encoding is `out` to `at`: with the words as they are if it is not shorter. */
static inline uint8_t *sn_exact_shorter(uint8_t *out, uint8_t *at, const uint8_t *words, unsigned count)
{
    if (at - out <= 4 * (ptrdiff_t)count)
        return at;
    *out = SN_EXACT_AS_IT_IS;
    memcpy(out + 1, words, 4 * count);
    return out + 1 + 4 * count;
}

/* sn_encode (codecs.h): blocks as long as they fit; one of fewer than 128 words ends the body. */
static SN_INLINE size_t sn_exact_encode_blocks(sn_exact_block_encoder *put, int bits, const uint8_t *words,
                                               size_t count, uint8_t *out, size_t capacity, size_t *consumed)
{
    uint8_t *const start = out, *const end = out + capacity;
    uint8_t scratch[SN_EXACT_BOUND];
    size_t done = 0;
    while (done < count) {
        const unsigned some = count - done < SN_EXACT_BLOCK_WORDS ? (unsigned)(count - done) : SN_EXACT_BLOCK_WORDS;
        const int fits = end - out >= SN_EXACT_BOUND;
        uint8_t *const at = fits ? out : scratch;
        const ptrdiff_t size = put(at, bits, words + 4 * done, some) - at;
        if (size > end - out)
            break;
        if (!fits)
            memcpy(out, scratch, (size_t)size);
        out += size;
        done += some;
    }
    *consumed = done;
    return (size_t)(out - start);
}

/* sn_decode_part. */
static SN_INLINE ptrdiff_t sn_exact_decode_blocks(sn_exact_block_decoder *take, int bits, const uint8_t *body,
                                                  size_t length, uint8_t *words, size_t count)
{
    const uint8_t *in = body, *const end = body + length;
    while (in && count) {
        const unsigned some = count < SN_EXACT_BLOCK_WORDS ? (unsigned)count : SN_EXACT_BLOCK_WORDS;
        in = take(in, end, bits, words, some);
        words += 4 * some;
        count -= some;
    }
    return in ? in - body : -1;
}

#endif
