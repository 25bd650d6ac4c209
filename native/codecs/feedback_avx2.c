/* Error feedback with AVX2, also used where AVX-512 is available. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
#define SN_TARGET __attribute__((target("avx2")))
#define SN_FEEDBACK(name) sn_##name##_avx2
#include "codecs/feedback_loops.h"
#endif
