/* The loops of feedback.h, included once per instruction set by a file that defines SN_TARGET (an attribute, or
   nothing) and SN_FEEDBACK(name) (a function's name for it). The compiler vectorises them. */
#ifndef SOFTNIC_FEEDBACK_LOOPS_H
#define SOFTNIC_FEEDBACK_LOOPS_H
#include "codecs/feedback.h"
#include "words.h"

typedef size_t sn_feedback_bounded(int k, float scale, const uint8_t *gradient, uint8_t *residual, size_t count,
                                   uint8_t *out);
typedef void sn_feedback_adder(const uint8_t *gradient, const uint8_t *residual, size_t count, uint8_t *sum);
typedef void sn_feedback_keeper(const uint8_t *sum, const uint8_t *rounded, size_t count, uint8_t *residual);

sn_feedback_bounded SN_FEEDBACK(feedback);
sn_feedback_adder SN_FEEDBACK(feedback_add);
sn_feedback_keeper SN_FEEDBACK(feedback_keep);

/* Elements of a group of codec 2, and of a burst (bounded.c). */
enum { GROUP = 64, BURST = 8 };

typedef struct {
    float scale;
    float inverse;
    float step;  /* 2^(1-k) */
    float steps; /* 2^(k-1) */
} grid;

/* One group, or the rest behind the last one. `sizes` receives the bytes of each element's vector. */
SN_TARGET static SN_INLINE void feed(grid on, const uint8_t *gradient, uint8_t *residual, unsigned count,
                                     uint8_t *out, uint8_t *sizes)
{
    SN_INDEPENDENT
    for (unsigned i = 0; i < count; i++) {
        const float p = sn_float_of(sn_load32(gradient + 4 * i)) + sn_float_of(sn_load32(residual + 4 * i));
        const uint32_t bits = sn_bits_of(p * on.scale);
        const float magnitude = sn_float_of(bits & 0x7fffffff), q = magnitude * on.steps;
        const float n = (q + 0x1p23f) - 0x1p23f; /* an integer, as larger numbers are anyway */
        const uint32_t is_small = sn_mask(q < 0x1p23f);
        const uint32_t rounded = (sn_bits_of(n * on.step) & is_small) | (sn_bits_of(magnitude) & ~is_small);
        const float result = sn_float_of(rounded | (bits & 0x80000000));
        const uint32_t rest = sn_bits_of(p - result * on.inverse);
        sn_store32(out + 4 * i, sn_bits_of(result));
        sn_store32(residual + 4 * i, rest & sn_mask((rest & 0x7f800000) != 0x7f800000));
        sizes[i] = (uint8_t)(4 + 2 * sn_mask(n <= 32767) + sn_mask(n <= 127) + sn_mask(n <= 0));
    }
}

/* Returns the bytes of a group: flags, tags of nonzero bursts, vectors. */
SN_TARGET static SN_INLINE size_t encoded(const uint8_t *sizes)
{
    size_t bytes = 1;
    for (unsigned i = 0; i < GROUP; i += BURST) {
        const uint64_t burst = sn_load64(sizes + i);
        bytes += 2 * (burst != 0) + (burst * 0x0101010101010101 >> 56); /* at most 32 */
    }
    return bytes;
}

SN_TARGET size_t SN_FEEDBACK(feedback)(int k, float scale, const uint8_t *gradient, uint8_t *residual, size_t count,
                                       uint8_t *out)
{
    const float step = sn_float_of((uint32_t)(127 + 1 - k) << 23);
    const grid on = {scale, 1 / scale, step, 1 / step};
    uint8_t sizes[GROUP];
    size_t bytes = 0;
    for (; count >= GROUP; count -= GROUP) {
        feed(on, gradient, residual, GROUP, out, sizes);
        bytes += encoded(sizes);
        gradient += 4 * GROUP;
        residual += 4 * GROUP;
        out += 4 * GROUP;
    }
    if (count) {
        memset(sizes, 0, sizeof sizes);
        feed(on, gradient, residual, (unsigned)count, out, sizes);
        bytes += encoded(sizes);
    }
    return bytes;
}

SN_TARGET void SN_FEEDBACK(feedback_add)(const uint8_t *gradient, const uint8_t *residual, size_t count, uint8_t *sum)
{
    SN_INDEPENDENT
    for (size_t i = 0; i < count; i++)
        sn_store32(sum + 4 * i, sn_bits_of(sn_float_of(sn_load32(gradient + 4 * i)) +
                                           sn_float_of(sn_load32(residual + 4 * i))));
}

SN_TARGET void SN_FEEDBACK(feedback_keep)(const uint8_t *sum, const uint8_t *rounded, size_t count, uint8_t *residual)
{
    SN_INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const uint32_t rest =
            sn_bits_of(sn_float_of(sn_load32(sum + 4 * i)) - sn_float_of(sn_load32(rounded + 4 * i)));
        sn_store32(residual + 4 * i, rest & sn_mask((rest & 0x7f800000) != 0x7f800000));
    }
}

#endif
