/* Reductions fused with codecs, in parts that stay in the first-level cache between steps. */
#include "codecs/combine.h"

#include "codecs/codecs.h"
#include "codecs/reduce.h"
#include "words.h"

static size_t part_of(size_t count) { return count < SN_COMBINE_WORDS ? count : SN_COMBINE_WORDS; }

static int legal(int codec, int parameter, int operation)
{
    return sn_codec_valid(codec, parameter) && sn_reduces(operation, SN_FLOAT32);
}

int sn_decode_combine(int codec, int parameter, const uint8_t *body, size_t length, int operation,
                      const uint8_t *right, uint8_t *out, size_t count)
{
    uint8_t decoded[4 * SN_COMBINE_WORDS];
    if (!legal(codec, parameter, operation) || length < sn_encoded_least(codec, parameter, count))
        return -1;
    while (count) {
        const size_t part = part_of(count);
        const ptrdiff_t used = sn_decode_part(codec, parameter, body, length, decoded, part);
        if (used < 0)
            return -1;
        sn_reduce(operation, SN_FLOAT32, decoded, right, part, out);
        body += used;
        length -= (size_t)used;
        right += 4 * part;
        out += 4 * part;
        count -= part;
    }
    return length ? -1 : 0;
}

/* Progress of encoding combined words: the parts before it are complete. */
typedef struct {
    uint8_t *out;
    size_t room;
    size_t done;
} place;

size_t sn_combine_encode(int codec, int parameter, int operation, const uint8_t *left, const uint8_t *right,
                         size_t count, size_t first, uint8_t *out, size_t capacity, size_t *consumed)
{
    uint8_t sums[2][4 * SN_COMBINE_WORDS];
    const size_t block = (size_t)sn_codec_block_words(codec), cut = first % block;
    place at = {out, capacity, 0}, before = at;
    *consumed = 0;
    if (!legal(codec, parameter, operation))
        return 0;
    for (unsigned turn = 0; at.done < count; turn ^= 1) {
        const size_t part = part_of(count - at.done);
        size_t taken;
        sn_reduce(operation, SN_FLOAT32, left + 4 * at.done, right + 4 * at.done, part, sums[turn]);
        size_t used = sn_encode(codec, parameter, sums[turn], part, first, at.out, at.room, &taken);
        const int back = taken == 0 && cut && at.done;
        if (back) { /* no cut fits behind the part before: end at the last one within it */
            at = before;
            used = sn_encode(codec, parameter, sums[turn ^ 1], SN_COMBINE_WORDS - block + cut, first,
                             at.out, at.room, &taken);
        }
        before = at;
        at = (place){at.out + used, at.room - used, at.done + taken};
        if (back || taken < part)
            break;
    }
    *consumed = at.done;
    return (size_t)(at.out - out);
}

int sn_combine_roundtrip(int codec, int parameter, int operation, const uint8_t *left, const uint8_t *right,
                         size_t count, uint8_t *out)
{
    if (!legal(codec, parameter, operation))
        return -1;
    while (count) {
        const size_t part = part_of(count);
        sn_reduce(operation, SN_FLOAT32, left, right, part, out);
        sn_roundtrip(codec, parameter, out, part, out);
        left += 4 * part;
        right += 4 * part;
        out += 4 * part;
        count -= part;
    }
    return 0;
}
