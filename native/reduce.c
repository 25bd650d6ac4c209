/* Reductions for the architecture's baseline (SSE2, NEON), and the selection of an implementation. */
#define SN_TARGET
#define SN_REDUCERS sn_reducers_portable
#include "reduce_loops.h"

/* Returns the loops in use. Implementations without loops of their own, e.g. NEON, use those of this file. */
static const sn_reducers *in_use(void)
{
    switch (sn_simd()) {
#ifdef SN_HAVE_AVX2
    case SN_AVX2:
        return &sn_reducers_avx2;
#endif
#ifdef SN_HAVE_AVX512
    case SN_AVX512:
        return &sn_reducers_avx512;
#endif
    default:
        return &sn_reducers_portable;
    }
}

size_t sn_type_size(int type)
{
    static const size_t SIZES[SN_TYPES] = {
        [SN_FLOAT32] = 4, [SN_FLOAT64] = 8, [SN_INT8] = 1,   [SN_INT16] = 2,  [SN_INT32] = 4,
        [SN_INT64] = 8,   [SN_UINT8] = 1,   [SN_UINT16] = 2, [SN_UINT32] = 4, [SN_UINT64] = 8,
        [SN_FLOAT16] = 2, [SN_BFLOAT16] = 2,
    };
    return type >= 0 && type < SN_TYPES ? SIZES[type] : 0;
}

int sn_reduce(int operation, int type, const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out)
{
    if (operation < 0 || operation >= SN_OPERATIONS || !sn_type_size(type))
        return -1;
    in_use()->reduce[operation][type](left, right, count, out);
    return 0;
}

static int is_half(int type)
{
    return type == SN_FLOAT16 || type == SN_BFLOAT16;
}

int sn_widen(int type, const uint8_t *halves, size_t count, uint8_t *floats)
{
    if (!is_half(type))
        return -1;
    in_use()->widen[type](halves, count, floats);
    return 0;
}

int sn_narrow(int type, const uint8_t *floats, size_t count, uint8_t *halves)
{
    if (!is_half(type))
        return -1;
    in_use()->narrow[type](floats, count, halves);
    return 0;
}

static void divide_float32(uint8_t *elements, size_t count, float divisor)
{
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, elements + i * sizeof value, sizeof value);
        value /= divisor;
        memcpy(elements + i * sizeof value, &value, sizeof value);
    }
}

static void divide_float64(uint8_t *elements, size_t count, double divisor)
{
    for (size_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, elements + i * sizeof value, sizeof value);
        value /= divisor;
        memcpy(elements + i * sizeof value, &value, sizeof value);
    }
}

int sn_divide(int type, uint8_t *elements, size_t count, uint32_t divisor)
{
    uint8_t floats[4 * PART];
    if (type == SN_FLOAT32)
        divide_float32(elements, count, (float)divisor);
    else if (type == SN_FLOAT64)
        divide_float64(elements, count, divisor);
    else if (!is_half(type))
        return -1;
    for (size_t part; is_half(type) && count; elements += 2 * part, count -= part) {
        part = count < PART ? count : PART;
        in_use()->widen[type](elements, part, floats);
        divide_float32(floats, part, (float)divisor);
        in_use()->narrow[type](floats, part, elements);
    }
    return 0;
}
