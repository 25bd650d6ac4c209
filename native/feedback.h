/* Error feedback around codec 2 (bounded): what a rank applies to its gradients before they are summed, in one pass.
   Elements are 32-bit floats in buffers without alignment that do not overlap. */
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

#endif
