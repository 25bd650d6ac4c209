/* Reductions with AVX-512. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_AVX512
#ifndef SN_EMULATED_AVX512
#include <immintrin.h>
#define SN_F16C
#endif
#define SN_TARGET SN_TARGET_AVX512
#define SN_REDUCERS sn_reducers_avx512
#include "codecs/reduce_loops.h"
#endif
