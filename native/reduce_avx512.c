/* Reductions with AVX-512. */
#include "kernels.h"

#ifdef SN_HAVE_AVX512
#define SN_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define SN_REDUCERS sn_reducers_avx512
#include "reduce_loops.h"
#endif
