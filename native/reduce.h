/* Reductions element by element: out[i] = left[i] op right[i], the combination step of collectives.
   Pure functions over the caller's buffers, which need no alignment. */
#ifndef SOFTNIC_REDUCE_H
#define SOFTNIC_REDUCE_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Integers wrap around. Of floats, the bits are fixed wherever IEEE 754 fixes them, and in these cases:
   - one operand a NaN: the result is that one, made quiet by sum and product and left as it is by minimum and maximum;
   - both: the first;
   - minimum and maximum of equal operands, zeros of either sign among them: the second.
   numpy does the same on x86-64, but for the sum and the product of two NaNs, where it takes the one or the other. The
   NaN of an invalid operation (inf - inf, 0 * inf) is the machine's.
   Halves (float16, and bfloat16, which is the upper half of a float32) are combined as float32 and rounded half to even
   each time; of a NaN the upper bits of the payload are kept. */
enum { SN_SUM = 0, SN_PROD = 1, SN_MIN = 2, SN_MAX = 3, SN_OPERATIONS = 4 };

enum {
    SN_FLOAT32 = 0, SN_FLOAT64 = 1,
    SN_INT8 = 2, SN_INT16 = 3, SN_INT32 = 4, SN_INT64 = 5,
    SN_UINT8 = 6, SN_UINT16 = 7, SN_UINT32 = 8, SN_UINT64 = 9,
    SN_FLOAT16 = 10, SN_BFLOAT16 = 11,
    SN_TYPES = 12
};

/* The bytes of an element, or 0 where no type has this number. */
size_t sn_type_size(int type);

/* Combines `count` elements. `out` may be `left`, `right` or both, but not overlap them otherwise. Returns 0, or -1
   where there is no such operation or type; nothing is written then. */
int sn_reduce(int operation, int type, const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out);

/* Halves as the float32 that they are, and float32 rounded half to even to them; too large a number becomes infinity, a
   NaN quiet. The buffers do not overlap. Returns 0, or -1 where the type is none of them; nothing is written then. */
int sn_widen(int type, const uint8_t *halves, size_t count, uint8_t *floats);
int sn_narrow(int type, const uint8_t *floats, size_t count, uint8_t *halves);

#endif
