/* Codec 0: words unchanged. */
#include "codecs/codecs.h"
#include "codecs/kernels.h"
#include "words.h"

size_t sn_raw_encode(int parameter, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                     size_t *consumed)
{
    const size_t space = capacity / 4, cut = first % SN_CODING_BLOCK_WORDS;
    size_t taken = count;
    (void)parameter;
    if (space < count)
        taken = space < cut ? 0 : space - (space - cut) % SN_CODING_BLOCK_WORDS;
    if (taken)
        memcpy(out, words, 4 * taken);
    *consumed = taken;
    return 4 * taken;
}

ptrdiff_t sn_raw_decode(int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    (void)parameter;
    if (length / 4 < count)
        return -1;
    if (count)
        memcpy(words, body, 4 * count);
    return (ptrdiff_t)(4 * count);
}

int sn_raw_tags(const uint8_t *body, size_t length, size_t count, uint64_t *counts)
{
    (void)body;
    if (length % 4 || length / 4 != count)
        return -1;
    counts[3] += count;
    return 0;
}

void sn_raw_roundtrip(int parameter, const uint8_t *words, size_t count, uint8_t *out)
{
    (void)parameter;
    if (count)
        memmove(out, words, 4 * count);
}

size_t sn_raw_size(int parameter, size_t count)
{
    (void)parameter;
    return count > SIZE_MAX / 4 ? SIZE_MAX : 4 * count;
}
