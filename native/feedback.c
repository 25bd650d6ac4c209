/* Error feedback for the architecture's baseline (SSE2, NEON), and the selection of an implementation. */
#define SN_TARGET
#define SN_FEEDBACK sn_feedback_portable
#include "feedback_loops.h"
#include "kernels.h"

#ifdef SN_HAVE_AVX2
size_t sn_feedback_avx2(int k, float scale, const uint8_t *gradient, uint8_t *residual, size_t count, uint8_t *out);
#endif

size_t sn_feedback(int k, float scale, const uint8_t *gradient, uint8_t *residual, size_t count, uint8_t *out)
{
#ifdef SN_HAVE_AVX2
    if (sn_simd() == SN_AVX2 || sn_simd() == SN_AVX512)
        return sn_feedback_avx2(k, scale, gradient, residual, count, out);
#endif
    return sn_feedback_portable(k, scale, gradient, residual, count, out);
}
