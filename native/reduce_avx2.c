/* Reductions with AVX2. */
#include "kernels.h"

#ifdef SN_HAVE_AVX2
#define SN_TARGET __attribute__((target("avx2")))
#define SN_REDUCERS sn_reducers_avx2
#include "reduce_loops.h"
#endif
