/* Reductions for what every machine of the architecture has (SSE2, NEON), and the choice among all of them. */
#define SN_TARGET
#define SN_REDUCERS sn_reducers
#include "reduce_loops.h"

typedef sn_reducer *const reducers[SN_TYPES];

/* The loops in use. Implementations without any of their own, NEON among them, have those of this file. */
static reducers *in_use(void)
{
    switch (sn_simd()) {
#ifdef SN_HAVE_AVX2
    case SN_AVX2:
        return sn_reducers_avx2;
#endif
#ifdef SN_HAVE_AVX512
    case SN_AVX512:
        return sn_reducers_avx512;
#endif
    default:
        return sn_reducers;
    }
}

size_t sn_type_size(int type)
{
    static const size_t SIZES[SN_TYPES] = {
        [SN_FLOAT32] = 4, [SN_FLOAT64] = 8, [SN_INT8] = 1,   [SN_INT16] = 2,  [SN_INT32] = 4,
        [SN_INT64] = 8,   [SN_UINT8] = 1,   [SN_UINT16] = 2, [SN_UINT32] = 4, [SN_UINT64] = 8,
    };
    return type >= 0 && type < SN_TYPES ? SIZES[type] : 0;
}

int sn_reduce(int operation, int type, const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out)
{
    if (operation < 0 || operation >= SN_OPERATIONS || !sn_type_size(type))
        return -1;
    in_use()[operation][type](left, right, count, out);
    return 0;
}
