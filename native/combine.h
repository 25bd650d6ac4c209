/* Reductions fused with codecs: what is decoded is combined, and what is combined encoded, while it is in the nearest
   cache. The bits are those of the calls one after the other. Elements are 32-bit floats. */
#ifndef SOFTNIC_COMBINE_H
#define SOFTNIC_COMBINE_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Words combined at a time: 8 KiB, of which operands, scratch and result fit into a first-level cache. A multiple of
   SN_PART_WORDS. */
enum { SN_COMBINE_WORDS = 2048 };

/* out = decode(body) op right. `out` may be `right`. Returns 0, or -1 where sn_decode would or where there is no such
   operation; `out` is then unspecified. A caller who gets another body for the same words later (a segment sent again)
   gives an `out` that is not `right`, which stays as it is. */
int sn_decode_combine(int codec, int parameter, const uint8_t *body, size_t length, int operation,
                      const uint8_t *right, uint8_t *out, size_t count);

/* sn_encode of left op right, which is written nowhere else. 0 and no words consumed where there is no such codec or
   operation. */
size_t sn_combine_encode(int codec, int parameter, int operation, const uint8_t *left, const uint8_t *right,
                         size_t count, size_t first, uint8_t *out, size_t capacity, size_t *consumed);

/* out = decode(encode(left op right)). `out` may be `left`, `right` or both. Returns 0, or -1 where there is no such
   codec or operation; nothing is written then. */
int sn_combine_roundtrip(int codec, int parameter, int operation, const uint8_t *left, const uint8_t *right,
                         size_t count, uint8_t *out);

#endif
