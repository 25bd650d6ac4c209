/* Reductions with AVX2 and F16C, which codecs.c requires together. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX2
#include <immintrin.h>
#define SN_TARGET __attribute__((target("avx2,f16c")))
#define SN_F16C
#define SN_REDUCERS sn_reducers_avx2
#include "codecs/reduce_loops.h"
#endif
