/* The loops of reduce.h, included once per instruction set by a file that defines SN_TARGET (an attribute, or nothing)
   and SN_REDUCERS (the name of the table). The compiler vectorises them; they are both the reference and the fast
   version. */
#include <float.h>

#include "codecs/halves.h"
#include "codecs/reducers.h"
#include "words.h"

/* Compilers swap the operands of + and *, whose first NaN would be the result. So if the first operand is a NaN, it is
   the second one too. */
#define FLOAT_SUM a + (a != a ? a : b)
#define FLOAT_PROD a * (a != a ? a : b)
#define FLOAT_MIN ((a < b) | (a != a)) ? a : b
#define FLOAT_MAX ((a > b) | (a != a)) ? a : b

/* 1u: small types would be promoted to int, which must not overflow. */
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

#define LOGIC_LOOPS(bits) \
    LOOP(land_uint##bits, uint##bits##_t, (a != 0) & (b != 0)) \
    LOOP(lor_uint##bits, uint##bits##_t, (a != 0) | (b != 0)) \
    LOOP(lxor_uint##bits, uint##bits##_t, (a != 0) ^ (b != 0)) \
    LOOP(band_uint##bits, uint##bits##_t, a & b) \
    LOOP(bor_uint##bits, uint##bits##_t, a | b) \
    LOOP(bxor_uint##bits, uint##bits##_t, a ^ b)

FLOAT_LOOPS(float32, float)
FLOAT_LOOPS(float64, double)
INT_LOOPS(8)
INT_LOOPS(16)
INT_LOOPS(32)
INT_LOOPS(64)
LOGIC_LOOPS(8)
LOGIC_LOOPS(16)
LOGIC_LOOPS(32)
LOGIC_LOOPS(64)

#if LDBL_MANT_DIG == 64
enum { LONG_DOUBLE_BYTES = 10 }; /* of x87; padding follows */
#else
enum { LONG_DOUBLE_BYTES = sizeof(long double) };
#endif

static inline void store_long_double(uint8_t *to, long double value)
{
    memset(to, 0, sizeof value);
    memcpy(to, &value, LONG_DOUBLE_BYTES);
}

#define LONG_DOUBLE_LOOP(name, expression) \
    SN_TARGET static void name##_long_double(const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out) \
    { \
        for (size_t i = 0; i < count; i++) { \
            long double a, b; \
            memcpy(&a, left + i * sizeof a, sizeof a); \
            memcpy(&b, right + i * sizeof b, sizeof b); \
            store_long_double(out + i * sizeof a, expression); \
        } \
    }

LONG_DOUBLE_LOOP(sum, FLOAT_SUM)
LONG_DOUBLE_LOOP(prod, FLOAT_PROD)
LONG_DOUBLE_LOOP(min, FLOAT_MIN)
LONG_DOUBLE_LOOP(max, FLOAT_MAX)

#define STORE(to, value) memcpy(to, &value, sizeof value)
#define STORE_LONG_DOUBLE(to, value) store_long_double(to, value)

/* Of NaNs, the first one of each sum and product is the result, as above; `c` and `d` are the parts of the right
   operand. */
#define COMPLEX_LOOPS(name, parts, type, store) \
    SN_TARGET static void sum_##name(const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out) \
    { \
        sum_##parts(left, right, 2 * count, out); \
    } \
    static inline type times_##name(type a, type b) { return FLOAT_PROD; } \
    static inline type plus_##name(type a, type b) { return FLOAT_SUM; } \
    SN_TARGET static void prod_##name(const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out) \
    { \
        SN_INDEPENDENT \
        for (size_t i = 0; i < 2 * count; i += 2) { \
            type a, b, c, d; \
            memcpy(&a, left + i * sizeof a, sizeof a); \
            memcpy(&b, left + (i + 1) * sizeof b, sizeof b); \
            memcpy(&c, right + i * sizeof c, sizeof c); \
            memcpy(&d, right + (i + 1) * sizeof d, sizeof d); \
            const type real = times_##name(a, c) - times_##name(b, d); \
            const type imaginary = plus_##name(times_##name(a, d), times_##name(b, c)); \
            store(out + i * sizeof a, real); \
            store(out + (i + 1) * sizeof a, imaginary); \
        } \
    }

COMPLEX_LOOPS(complex64, float32, float, STORE)
COMPLEX_LOOPS(complex128, float64, double, STORE)
COMPLEX_LOOPS(long_complex, long_double, long double, STORE_LONG_DOUBLE)

/* Converts one type to another. `by_8` converts as many elements as it can and returns their number. */
#define CONVERSION(name, from_type, to_type, convert, by_8) \
    SN_TARGET static void name(const uint8_t *from, size_t count, uint8_t *to) \
    { \
        const size_t done = by_8(from, count, to); \
        SN_INDEPENDENT \
        for (size_t i = done; i < count; i++) { \
            from_type value; \
            memcpy(&value, from + i * sizeof value, sizeof value); \
            const to_type converted = convert(value); \
            memcpy(to + i * sizeof converted, &converted, sizeof converted); \
        } \
    }

#ifdef SN_F16C
/* Converts the elements that fill whole registers. Returns how many. */
SN_TARGET static size_t widen_by_8(const uint8_t *from, size_t count, uint8_t *to)
{
    for (size_t i = 0; i + 8 <= count; i += 8)
        _mm256_storeu_ps((float *)(to + 4 * i), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * i))));
    return count / 8 * 8;
}

SN_TARGET static size_t narrow_by_8(const uint8_t *from, size_t count, uint8_t *to)
{
    for (size_t i = 0; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(to + 2 * i), _mm256_cvtps_ph(_mm256_loadu_ps((const float *)(from + 4 * i)), 0));
    return count / 8 * 8;
}
#else
#define widen_by_8(from, count, to) 0
#define narrow_by_8(from, count, to) 0
#endif
#define ONE_BY_ONE(from, count, to) 0

CONVERSION(widen_float16, uint16_t, uint32_t, sn_widened_float16, widen_by_8)
CONVERSION(narrow_float16, uint32_t, uint16_t, sn_narrowed_float16, narrow_by_8)
CONVERSION(widen_bfloat16, uint16_t, uint32_t, sn_widened_bfloat16, ONE_BY_ONE)
CONVERSION(narrow_bfloat16, uint32_t, uint16_t, sn_narrowed_bfloat16, ONE_BY_ONE)

/* Sums and products of 16-bit floats are those of float32, rounded; parts stay in the first-level cache between
   steps. */
enum { PART = 512 };

#define THROUGH_FLOAT32(operation, name) \
    SN_TARGET static void operation##_##name(const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out) \
    { \
        uint8_t a[4 * PART], b[4 * PART]; \
        while (count) { \
            const size_t part = count < PART ? count : PART; \
            widen_##name(left, part, a); \
            widen_##name(right, part, b); \
            operation##_float32(a, b, part, a); \
            narrow_##name(a, part, out); \
            left += 2 * part; \
            right += 2 * part; \
            out += 2 * part; \
            count -= part; \
        } \
    }

#define HALF_NAN(x, infinity) ((x & 0x7fff) > infinity)
#define HALF_MIN(infinity) \
    HALF_NAN(a, infinity) | ((sn_half_order(a) < sn_half_order(b)) & !HALF_NAN(b, infinity)) ? a : b
#define HALF_MAX(infinity) \
    HALF_NAN(a, infinity) | ((sn_half_order(a) > sn_half_order(b)) & !HALF_NAN(b, infinity)) ? a : b

#define HALF_LOOPS(name, infinity) \
    THROUGH_FLOAT32(sum, name) \
    THROUGH_FLOAT32(prod, name) \
    LOOP(min_##name, uint16_t, HALF_MIN(infinity)) \
    LOOP(max_##name, uint16_t, HALF_MAX(infinity))

HALF_LOOPS(float16, SN_INFINITY_16)
HALF_LOOPS(bfloat16, SN_INFINITY_B16)

#define ROW(signed_name, unsigned_name, of_booleans, ...) \
    { \
        [SN_FLOAT32] = signed_name##_float32, [SN_FLOAT64] = signed_name##_float64, \
        [SN_INT8] = signed_name##_int8,       [SN_INT16] = signed_name##_int16, \
        [SN_INT32] = signed_name##_int32,     [SN_INT64] = signed_name##_int64, \
        [SN_UINT8] = unsigned_name##int8,     [SN_UINT16] = unsigned_name##int16, \
        [SN_UINT32] = unsigned_name##int32,   [SN_UINT64] = unsigned_name##int64, \
        [SN_FLOAT16] = signed_name##_float16, [SN_BFLOAT16] = signed_name##_bfloat16, \
        [SN_LONG_DOUBLE] = signed_name##_long_double, [SN_BOOL] = of_booleans, __VA_ARGS__ \
    }

#define COMPLEX(name) \
    [SN_COMPLEX64] = name##_complex64, [SN_COMPLEX128] = name##_complex128, [SN_LONG_COMPLEX] = name##_long_complex

#define LOGIC_ROW(name, of_booleans) \
    { \
        [SN_INT8] = name##_uint8,   [SN_UINT8] = name##_uint8,   [SN_INT16] = name##_uint16, \
        [SN_UINT16] = name##_uint16, [SN_INT32] = name##_uint32, [SN_UINT32] = name##_uint32, \
        [SN_INT64] = name##_uint64, [SN_UINT64] = name##_uint64, [SN_BOOL] = of_booleans, \
    }

const sn_reducers SN_REDUCERS = {
    .reduce = {
        [SN_SUM] = ROW(sum, sum_, lor_uint8, COMPLEX(sum)),
        [SN_PROD] = ROW(prod, prod_, land_uint8, COMPLEX(prod)),
        [SN_MIN] = ROW(min, min_u, land_uint8, ),
        [SN_MAX] = ROW(max, max_u, lor_uint8, ),
        [SN_LAND] = LOGIC_ROW(land, land_uint8),
        [SN_LOR] = LOGIC_ROW(lor, lor_uint8),
        [SN_LXOR] = LOGIC_ROW(lxor, lxor_uint8),
        [SN_BAND] = LOGIC_ROW(band, land_uint8),
        [SN_BOR] = LOGIC_ROW(bor, lor_uint8),
        [SN_BXOR] = LOGIC_ROW(bxor, lxor_uint8),
    },
    .widen = {[SN_FLOAT16] = widen_float16, [SN_BFLOAT16] = widen_bfloat16},
    .narrow = {[SN_FLOAT16] = narrow_float16, [SN_BFLOAT16] = narrow_bfloat16},
};
