/* Error feedback for the architecture's baseline (SSE2, NEON), and the selection of an implementation. */
#define SN_TARGET
#define SN_FEEDBACK(name) sn_##name##_portable
#include "codecs/feedback_loops.h"
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
sn_feedback_bounded sn_feedback_avx2;
sn_feedback_adder sn_feedback_add_avx2;
sn_feedback_keeper sn_feedback_keep_avx2;
#endif

enum { CHUNK_WORDS = 2048, MOST_BYTES = 5 * CHUNK_WORDS }; /* a chunk stays in the first-level cache */

typedef struct {
    sn_feedback_bounded *round;
    sn_feedback_adder *add;
    sn_feedback_keeper *keep;
} loops;

static loops selected(void)
{
#ifdef SN_HAVE_AVX2
    if (sn_simd() == SN_AVX2 || sn_simd() == SN_AVX512)
        return (loops){sn_feedback_avx2, sn_feedback_add_avx2, sn_feedback_keep_avx2};
#endif
    return (loops){sn_feedback_portable, sn_feedback_add_portable, sn_feedback_keep_portable};
}

size_t sn_feedback(int k, float scale, const uint8_t *gradient, uint8_t *residual, size_t count, uint8_t *out)
{
    return selected().round(k, scale, gradient, residual, count, out);
}

/* An element of one of the parts. */
typedef struct {
    const sn_feedback_part *part;
    size_t done;
} place;

/* Returns how many of the next `most` elements are in one part, and moves to it; there must be one. */
static size_t in_part(place *at, size_t most)
{
    for (; at->done == at->part->count; at->part++)
        at->done = 0;
    const size_t left = at->part->count - at->done;
    return most < left ? most : left;
}

size_t sn_feedback_parts(int codec, int parameter, const sn_feedback_part *parts, size_t count, uint8_t *out,
                         size_t padding)
{
    const loops by = selected();
    const size_t block = (size_t)sn_codec_block_words(codec);
    uint8_t sums[4 * CHUNK_WORDS], body[MOST_BYTES];
    size_t words = 0, bytes = 0, consumed;
    for (size_t i = 0; i < count; i++)
        words += parts[i].count;
    for (place at = {parts, 0}; words + padding;) {
        const size_t real = words < CHUNK_WORDS ? words : CHUNK_WORDS, room = CHUNK_WORDS - real;
        const size_t zeros = padding < room ? padding : room;
        const place begin = at;
        for (size_t i = 0, some; i < real; i += some, at.done += some) {
            some = in_part(&at, real - i);
            by.add(at.part->gradient + 4 * at.done, at.part->residual + 4 * at.done, some, sums + 4 * i);
        }
        memset(sums + 4 * real, 0, 4 * zeros);
        const size_t length = sn_encode(codec, parameter, sums, real + zeros, block, body, sizeof body, &consumed);
        if (consumed != real + zeros || sn_decode(codec, parameter, body, length, out, consumed))
            return 0;
        place back = begin;
        for (size_t i = 0, some; i < real; i += some, back.done += some) {
            some = in_part(&back, real - i);
            by.keep(sums + 4 * i, out + 4 * i, some, back.part->residual + 4 * back.done);
        }
        out += 4 * (real + zeros);
        bytes += length;
        words -= real;
        padding -= zeros;
    }
    return bytes;
}
