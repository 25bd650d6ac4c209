/* The codecs of FORMAT.md: 32-bit little-endian words in, bytes out, and back.
   Pure functions over the caller's buffers. Word buffers need no alignment. */
#ifndef SOFTNIC_CODECS_H
#define SOFTNIC_CODECS_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

enum { SN_RAW = 0, SN_INCEPTIONN = 1, SN_BOUNDED = 2, SN_BFP = 3, SN_TRUNCATE = 4 };

/* Words between two places where a tagged range may be cut (64 bytes). */
enum { SN_CODING_BLOCK_WORDS = 16 };

/* Words of which any multiple may be encoded, decoded and rounded apart from what follows, in every codec: the parts'
   bodies, joined, are the body of the whole. */
enum { SN_PART_WORDS = 64 };

/* Numbers are below this: a NIC announces its codecs in a bitmap of 16. */
enum { SN_CODEC_NUMBERS = 16 };

/* Implementations of the codecs, bit for bit the same; the first is the reference, the last available the quickest. */
enum { SN_SCALAR = 0, SN_AVX2 = 1, SN_AVX512 = 2, SN_NEON = 3, SN_SIMD_NUMBERS = 4 };

/* The name of an implementation, or NULL where none has this number. */
const char *sn_simd_name(int simd);

/* 1 if the implementation is built in and runs on this machine. */
int sn_simd_available(int simd);

/* The implementation in use: the quickest available since the library was loaded, or the one selected. */
int sn_simd(void);

/* Uses this implementation from now on, in all threads. Returns 0, or -1 where it is not available. */
int sn_simd_select(int simd);

/* The codec's name and the range of its parameter, or NULL where no codec has this number. */
const char *sn_codec_describe(int codec, int *lowest, int *highest);

/* 1 if the codec encodes the words of a 64-byte coding block together, so that what a word decodes to depends on its
   neighbours there, and 0 if each is encoded alone (or there is no such codec). */
int sn_codec_has_blocks(int codec);

/* 1 if sn_tag_counts can count the codec's vectors: its words have tags. */
int sn_codec_has_tags(int codec);

/* 1 if the codec is built in and takes this parameter. */
int sn_codec_valid(int codec, int parameter);

/* Bytes that are enough to encode `count` words whatever they are; 0 for an unknown codec. */
size_t sn_encoded_bound(int codec, int parameter, size_t count);

/* Bytes that no encoding of `count` words stays below; 0 for an unknown codec. What claims more words for its
   bytes than this allows is malformed, which can be seen before memory is set aside for the words. */
size_t sn_encoded_least(int codec, int parameter, size_t count);

/* Encodes the longest prefix of `count` words that fits into `capacity` bytes and ends at an allowed cut:
   after `first` words (1..16: the words left of a 64-byte coding block begun earlier; 16 when aligned), after
   `first` + 16 i words, or after all of them. A codec that has blocks stops after `first` words if these are fewer
   than 16, so that blocks begin where coding blocks do,
   however a range is cut. Returns the bytes written; `*consumed` gets the words taken,
   0 if not even the first coding block fits. Codec and parameter must be valid. */
size_t sn_encode(int codec, int parameter, const uint8_t *words, size_t count, size_t first,
                 uint8_t *out, size_t capacity, size_t *consumed);

/* Decodes exactly `length` bytes to exactly `count` words. Returns 0, or -1 if the body ends early or late
   or holds what no encoder writes where that matters for safety; `words` is then unspecified. */
int sn_decode(int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count);

/* Decodes `count` words from the start of a body whose first `length` bytes these are: all the words left, or a multiple
   of SN_PART_WORDS, behind which decoding goes on. Returns the bytes they took, or -1 where sn_decode would. */
ptrdiff_t sn_decode_part(int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count);

/* out = decode(encode(words)), without the bytes between. `out` may be `words`. */
void sn_roundtrip(int codec, int parameter, const uint8_t *words, size_t count, uint8_t *out);

/* Counts the vectors of an encoded body by tag: 0, 8, 16 and 32 bits (the paper's Table III) to counts[0..3]. Returns
   0, or -1 where sn_decode would, and for codecs without such vectors. */
int sn_tag_counts(int codec, int parameter, const uint8_t *body, size_t length, size_t count, uint64_t *counts);

#endif
