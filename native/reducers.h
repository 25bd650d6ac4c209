/* The tables of loops that reduce.c chooses from, one for each implementation that has its own. */
#ifndef SOFTNIC_REDUCERS_H
#define SOFTNIC_REDUCERS_H
#include "kernels.h"
#include "reduce.h"

typedef void sn_reducer(const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out);

extern sn_reducer *const sn_reducers[SN_OPERATIONS][SN_TYPES];
#ifdef SN_HAVE_AVX2
extern sn_reducer *const sn_reducers_avx2[SN_OPERATIONS][SN_TYPES];
#endif
#ifdef SN_HAVE_AVX512
extern sn_reducer *const sn_reducers_avx512[SN_OPERATIONS][SN_TYPES];
#endif

#endif
