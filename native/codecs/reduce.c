/* Reductions for the architecture's baseline (SSE2, NEON), and the selection of an implementation. */
#define SN_TARGET
#define SN_REDUCERS sn_reducers_portable
#include "codecs/reduce_loops.h"

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
        [SN_FLOAT16] = 2, [SN_BFLOAT16] = 2,  [SN_BOOL] = 1,   [SN_COMPLEX64] = 8, [SN_COMPLEX128] = 16,
        [SN_LONG_DOUBLE] = sizeof(long double), [SN_LONG_COMPLEX] = 2 * sizeof(long double),
    };
    return type >= 0 && type < SN_TYPES ? SIZES[type] : 0;
}

bool sn_reduces(int operation, int type)
{
    return operation >= 0 && operation < SN_OPERATIONS && sn_type_size(type) &&
           sn_reducers_portable.reduce[operation][type];
}

int sn_reduce(int operation, int type, const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out)
{
    if (!sn_reduces(operation, type))
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

#define DIVISION(name, type, store) \
    static void divide_##name(uint8_t *elements, size_t count, type divisor) \
    { \
        for (size_t i = 0; i < count; i++) { \
            type value; \
            memcpy(&value, elements + i * sizeof value, sizeof value); \
            value /= divisor; \
            store(elements + i * sizeof value, value); \
        } \
    }

DIVISION(float32, float, STORE)
DIVISION(float64, double, STORE)
DIVISION(long_double, long double, STORE_LONG_DOUBLE)

/* By Smith's algorithm, which numpy has, too: the divisor's imaginary part is 0, and so is `ratio`. */
#define COMPLEX_DIVISION(name, type, store) \
    static void divide_##name(uint8_t *elements, size_t count, type divisor) \
    { \
        const type ratio = 0 / divisor, scale = 1 / divisor; \
        for (size_t i = 0; i < 2 * count; i += 2) { \
            type a, b; \
            memcpy(&a, elements + i * sizeof a, sizeof a); \
            memcpy(&b, elements + (i + 1) * sizeof b, sizeof b); \
            const type real = (a + b * ratio) * scale, imaginary = (b - a * ratio) * scale; \
            store(elements + i * sizeof a, real); \
            store(elements + (i + 1) * sizeof a, imaginary); \
        } \
    }

COMPLEX_DIVISION(complex64, float, STORE)
COMPLEX_DIVISION(complex128, double, STORE)
COMPLEX_DIVISION(long_complex, long double, STORE_LONG_DOUBLE)

static void divide_halves(int type, uint8_t *elements, size_t count, float divisor)
{
    uint8_t floats[4 * PART];
    for (size_t part; count; elements += 2 * part, count -= part) {
        part = count < PART ? count : PART;
        in_use()->widen[type](elements, part, floats);
        divide_float32(floats, part, divisor);
        in_use()->narrow[type](floats, part, elements);
    }
}

int sn_divide(int type, uint8_t *elements, size_t count, uint32_t divisor)
{
    switch (type) {
    case SN_FLOAT32:
        divide_float32(elements, count, (float)divisor);
        return 0;
    case SN_FLOAT64:
        divide_float64(elements, count, divisor);
        return 0;
    case SN_LONG_DOUBLE:
        divide_long_double(elements, count, divisor);
        return 0;
    case SN_COMPLEX64:
        divide_complex64(elements, count, (float)divisor);
        return 0;
    case SN_COMPLEX128:
        divide_complex128(elements, count, divisor);
        return 0;
    case SN_LONG_COMPLEX:
        divide_long_complex(elements, count, divisor);
        return 0;
    case SN_FLOAT16:
    case SN_BFLOAT16:
        divide_halves(type, elements, count, (float)divisor);
        return 0;
    default:
        return -1;
    }
}
