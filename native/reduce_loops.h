/* The loops of reduce.h, as often as there are machines to compile them for: included by one file for each, which
   defines SN_TARGET (an attribute, or nothing) and SN_REDUCERS (the name of the table). The compiler vectorises them
   all; they are the reference and the quick form at once. */
#include "reducers.h"
#include "words.h"

/* Iterations depend on each other in no way that callers may set up: out is an operand, or apart from both. */
#if defined(__clang__)
#define SN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define SN_INDEPENDENT _Pragma("GCC ivdep")
#else
#define SN_INDEPENDENT
#endif

/* Compilers swap the operands of + and *, of which the first NaN would be the result. So the second operand is the
   first one where that is a NaN. */
#define FLOAT_SUM a + (a != a ? a : b)
#define FLOAT_PROD a * (a != a ? a : b)
#define FLOAT_MIN (a < b) | (a != a) ? a : b
#define FLOAT_MAX (a > b) | (a != a) ? a : b

/* 1u: small types would become int, which must not overflow. */
#define INT_SUM 1u * a + b
#define INT_PROD 1u * a * b
#define INT_MIN_OF a < b ? a : b
#define INT_MAX_OF a > b ? a : b

#define LOOP(name, type, expression) \
    SN_TARGET static void name(const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out) \
    { \
        SN_INDEPENDENT \
        for (size_t i = 0; i < count; i++) { \
            type a, b; \
            memcpy(&a, left + i * sizeof a, sizeof a); \
            memcpy(&b, right + i * sizeof b, sizeof b); \
            a = (type)(expression); \
            memcpy(out + i * sizeof a, &a, sizeof a); \
        } \
    }

#define FLOAT_LOOPS(name, type) \
    LOOP(sum_##name, type, FLOAT_SUM) \
    LOOP(prod_##name, type, FLOAT_PROD) \
    LOOP(min_##name, type, FLOAT_MIN) \
    LOOP(max_##name, type, FLOAT_MAX)

/* Sums and products wrap to the same bits with and without a sign. */
#define INT_LOOPS(bits) \
    LOOP(sum_int##bits, uint##bits##_t, INT_SUM) \
    LOOP(prod_int##bits, uint##bits##_t, INT_PROD) \
    LOOP(min_int##bits, int##bits##_t, INT_MIN_OF) \
    LOOP(max_int##bits, int##bits##_t, INT_MAX_OF) \
    LOOP(min_uint##bits, uint##bits##_t, INT_MIN_OF) \
    LOOP(max_uint##bits, uint##bits##_t, INT_MAX_OF)

FLOAT_LOOPS(float32, float)
FLOAT_LOOPS(float64, double)
INT_LOOPS(8)
INT_LOOPS(16)
INT_LOOPS(32)
INT_LOOPS(64)

#define ROW(signed_name, unsigned_name) \
    { \
        [SN_FLOAT32] = signed_name##_float32, [SN_FLOAT64] = signed_name##_float64, \
        [SN_INT8] = signed_name##_int8,       [SN_INT16] = signed_name##_int16, \
        [SN_INT32] = signed_name##_int32,     [SN_INT64] = signed_name##_int64, \
        [SN_UINT8] = unsigned_name##int8,     [SN_UINT16] = unsigned_name##int16, \
        [SN_UINT32] = unsigned_name##int32,   [SN_UINT64] = unsigned_name##int64, \
    }

sn_reducer *const SN_REDUCERS[SN_OPERATIONS][SN_TYPES] = {
    [SN_SUM] = ROW(sum, sum_),
    [SN_PROD] = ROW(prod, prod_),
    [SN_MIN] = ROW(min, min_u),
    [SN_MAX] = ROW(max, max_u),
};
