/* Codecs and reductions by several threads, for arrays so large that starting threads costs little. The bits are those
   of one thread. Threads are started by each call and end with it, so there is nothing to set up, to stop, or to lose
   in a fork. */
#ifndef SOFTNIC_PARALLEL_H
#define SOFTNIC_PARALLEL_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Limit of the threads of one call. */
enum { SN_MOST_THREADS = 64 };

/* Encodes all words to `out`, all of whose sn_encoded_bound bytes may be written to. Returns the size of the encoding.
   Codec and parameter must be valid. */
size_t sn_parallel_encode(unsigned threads, int codec, int parameter, const uint8_t *words, size_t count,
                          uint8_t *out);

/* As sn_decode. A body has no entry points: each part is assumed to begin where it would if all words took equal space,
   and its result counts if the part before ends there. That holds for codecs 0 and 4, for codec 3 without blocks of
   zeros, infinities or NaNs, and rarely for the others, which one thread then decodes in the usual time. */
int sn_parallel_decode(unsigned threads, int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words,
                       size_t count);

/* As sn_roundtrip. */
void sn_parallel_roundtrip(unsigned threads, int codec, int parameter, const uint8_t *words, size_t count,
                           uint8_t *out);

/* As sn_reduce. */
int sn_parallel_reduce(unsigned threads, int operation, int type, const uint8_t *left, const uint8_t *right,
                       size_t count, uint8_t *out);

/* Copies bytes between arrays that do not overlap. */
void sn_parallel_copy(unsigned threads, const uint8_t *from, size_t size, uint8_t *to);

#endif
