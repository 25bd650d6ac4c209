/* Reductions fused with codecs: decoded words are combined, and combined words encoded, while in the first-level cache.
   The bits are those of separate calls. Elements are 32-bit floats. */
#ifndef SOFTNIC_COMBINE_H
#define SOFTNIC_COMBINE_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Words combined at a time: 8 KiB, so that operands, scratch and result fit into the first-level cache. A multiple of
   SN_PART_WORDS. */
enum { SN_COMBINE_WORDS = 2048 };

/* Computes out = decode(body) op right. `out` may be `right`. Returns 0, or -1 where sn_decode would or for an unknown
   operation; `out` is then unspecified. Callers that may receive another body for the same words (a retransmission)
   need an `out` other than `right`. */
int sn_decode_combine(int codec, int parameter, const uint8_t *body, size_t length, int operation,
                      const uint8_t *right, uint8_t *out, size_t count);

/* sn_encode of left op right, which is not stored. Returns 0 and consumes nothing for an unknown codec or operation. */
size_t sn_combine_encode(int codec, int parameter, int operation, const uint8_t *left, const uint8_t *right,
                         size_t count, size_t first, uint8_t *out, size_t capacity, size_t *consumed);

/* Computes out = decode(encode(left op right)). `out` may be `left`, `right` or both. Returns 0, or -1 for an unknown
   codec or operation; nothing is written then. */
int sn_combine_roundtrip(int codec, int parameter, int operation, const uint8_t *left, const uint8_t *right,
                         size_t count, uint8_t *out);

#endif
