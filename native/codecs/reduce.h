/* Elementwise reductions: out[i] = left[i] op right[i], the combination step of collectives. Pure functions over the
   caller's buffers, which need no alignment. */
#ifndef SOFTNIC_REDUCE_H
#define SOFTNIC_REDUCE_H
/* C only */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* all */

/* Integers wrap around. The bits of floats are those of IEEE 754 and, where it leaves them open:
   - one operand is a NaN: the result is that one, made quiet by sum and product, unchanged by minimum and maximum;
   - both are NaNs: the first;
   - minimum and maximum of equal operands, including zeros of either sign: the second.
   numpy does the same on x86-64, except for sum and product of two NaNs, where the result varies. The NaN of an invalid
   operation (inf - inf, 0 * inf) is the machine's. 16-bit floats (float16, and bfloat16, the upper half of a float32)
   are combined as float32 and rounded half to even each time; NaNs keep the upper bits of their payload. The product of
   complex numbers is (ac - bd) + (ad + bc)i, each step rounded; they have no minimum and maximum. Of booleans, sums and
   maxima are "or", products and minima "and". LAND to BXOR are those of MPI, for integers and booleans: 1 is true in
   every type. */
enum { SN_SUM = 0, SN_PROD = 1, SN_MIN = 2, SN_MAX = 3, SN_ARITHMETIC = 4 };
enum { SN_LAND = 4, SN_LOR = 5, SN_LXOR = 6, SN_BAND = 7, SN_BOR = 8, SN_BXOR = 9, SN_OPERATIONS = 10 };

enum {
    SN_FLOAT32 = 0, SN_FLOAT64 = 1,
    SN_INT8 = 2, SN_INT16 = 3, SN_INT32 = 4, SN_INT64 = 5,
    SN_UINT8 = 6, SN_UINT16 = 7, SN_UINT32 = 8, SN_UINT64 = 9,
    SN_FLOAT16 = 10, SN_BFLOAT16 = 11,
    SN_BOOL = 12,
    SN_COMPLEX64 = 13, SN_COMPLEX128 = 14,       /* of two float32, of two float64 */
    SN_LONG_DOUBLE = 15, SN_LONG_COMPLEX = 16,   /* the machine's; bytes without a meaning become zeros */
    SN_TYPES = 17
};

/* Returns the bytes of an element, or 0 for an unknown type. */
size_t sn_type_size(int type);

/* Whether an operation is defined for a type. */
bool sn_reduces(int operation, int type);

/* Combines `count` elements. `out` may be `left`, `right` or both, but not overlap them otherwise. Returns 0, or -1 for
   an operation that is not defined for the type; nothing is written then. */
int sn_reduce(int operation, int type, const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out);

/* Divides floats in place; complex numbers are multiplied by the reciprocal. Returns 0, or -1 for another type; nothing is
   written then. */
int sn_divide(int type, uint8_t *elements, size_t count, uint32_t divisor);

/* Convert 16-bit floats to float32, and float32 to 16-bit floats, rounding half to even; numbers too large become
   infinity, NaNs quiet. The buffers must not overlap. Return 0, or -1 for another type; nothing is written then. */
int sn_widen(int type, const uint8_t *halves, size_t count, uint8_t *floats);
int sn_narrow(int type, const uint8_t *floats, size_t count, uint8_t *halves);

#endif
