/* Error feedback around codec 2 (bounded): what a rank does to its gradients before they are summed, in one pass.
   Elements are 32-bit floats in the caller's buffers, which need no alignment and do not overlap. */
#ifndef SOFTNIC_FEEDBACK_H
#define SOFTNIC_FEEDBACK_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* With p = gradient + residual, for codec 2 with parameter k:
     out = p * scale, rounded half to even to multiples of 2^(1-k), the codec's step;  residual = p - out / scale.
   What the codec would send as it is, 2^15 steps and more,
   is rounded as well: so it changes nothing (but signs of zeros)
   of `out`, nor of a sum of several ranks' out, as far as float32 has that exactly: 2^24 steps. What is infinite or NaN
   passes, and leaves no residual. `scale` is a power of two between 2^-126 and 2^126. Returns the bytes that the codec
   makes of `out`. */
size_t sn_feedback(int k, float scale, const uint8_t *gradient, uint8_t *residual, size_t count, uint8_t *out);

#endif
