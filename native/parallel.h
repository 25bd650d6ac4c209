/* Codecs and reductions by several threads: for arrays so large that starting threads costs little beside them. The
   bytes and bits are those of one thread. Threads are started by each call and end with it, so that there is nothing
   to set up, to stop, or to lose in a fork; the caller's own does what others do not come to. */
#ifndef SOFTNIC_PARALLEL_H
#define SOFTNIC_PARALLEL_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* No call uses more, whatever it is asked for. */
enum { SN_MOST_THREADS = 64 };

/* Encodes all words to the start of `out`, all of whose sn_encoded_bound bytes may be written meanwhile. Returns the
   bytes that the encoding takes. Codec and parameter must be valid. */
size_t sn_parallel_encode(unsigned threads, int codec, int parameter, const uint8_t *words, size_t count,
                          uint8_t *out);

/* sn_decode. Where a body can be entered is not written in it: parts begin where they would if all words took the same
   room, and what comes of one counts if the part before ends there. That is so in codecs 0 and 4, in codec 3 but for
   blocks of zeros, infinities or NaNs, and rarely in the others, which one thread then decodes in the usual time. */
int sn_parallel_decode(unsigned threads, int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words,
                       size_t count);

/* sn_roundtrip. */
void sn_parallel_roundtrip(unsigned threads, int codec, int parameter, const uint8_t *words, size_t count,
                           uint8_t *out);

/* sn_reduce. */
int sn_parallel_reduce(unsigned threads, int operation, int type, const uint8_t *left, const uint8_t *right,
                       size_t count, uint8_t *out);

#endif
