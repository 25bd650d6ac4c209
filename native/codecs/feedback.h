/* Error feedback: what a rank applies to its gradients before they are summed, in one pass over memory. Elements are
   32-bit floats in buffers without alignment that do not overlap. */
#ifndef SOFTNIC_FEEDBACK_H
#define SOFTNIC_FEEDBACK_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* With p = gradient + residual, for codec 2 with parameter k:

     out = p * scale, rounded half to even to multiples of 2^(1-k), the codec's step;  residual = p - out / scale.

   Values of 2^15 steps and more, which the codec sends exactly, are rounded too. So the codec changes nothing
   (except signs of zeros) of `out`, nor of a sum of several ranks' `out` that is exact in float32: up to 2^24 steps.
   Infinities and NaNs pass and leave no residual. `scale` is a power of two between 2^-126 and 2^126. Returns the
   bytes of `out` encoded. */
size_t sn_feedback(int k, float scale, const uint8_t *gradient, uint8_t *residual, size_t count, uint8_t *out);

/* The elements of one parameter. */
typedef struct {
    const uint8_t *gradient;
    uint8_t *residual;
    size_t count;
} sn_feedback_part;

/* With p = gradient + residual of `count` parts one after the other, and of `padding` zeros, for any codec:

     out = decode(encode(p));  residual = p - out.

   Blocks of the codec reach over parts; the first begins at the first element. Infinities and NaNs leave no residual.
   Codec and parameter must be valid. Returns the encoded bytes. */
size_t sn_feedback_parts(int codec, int parameter, const sn_feedback_part *parts, size_t count, uint8_t *out,
                         size_t padding);

#endif
