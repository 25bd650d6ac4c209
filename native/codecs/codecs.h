/* The codecs of FORMAT.md: 32-bit little-endian words in, bytes out, and back.
   Pure functions over the caller's buffers. Word buffers need no alignment. */
#ifndef SOFTNIC_CODECS_H
#define SOFTNIC_CODECS_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

enum { SN_RAW = 0, SN_INCEPTIONN = 1, SN_BOUNDED = 2, SN_BFP = 3, SN_TRUNCATE = 4, SN_RHT = 5, SN_EXACT = 6, SN_MX = 7, SN_LAST_CODEC = SN_MX };

/* Words between two places where a tagged range may be cut (64 bytes), unless the codec's blocks are longer, and the
   longest of any codec's blocks. */
enum { SN_CODING_BLOCK_WORDS = 16, SN_LONGEST_BLOCK_WORDS = 128 };

/* Multiples of this many words can be encoded, decoded and rounded independently of what follows, in every codec: the
   concatenated bodies of the parts are the body of the whole. */
enum { SN_PART_WORDS = 128 };

/* Numbers are below this: a NIC announces its codecs in a bitmap of 16. */
enum { SN_CODEC_NUMBERS = 16 };

/* Implementations of the codecs, bit for bit equal. The first is the reference, and of those that a CPU may have the
   last available one is the fastest. SN_RTL are the engines of native/rtl, simulated; sn_rtl_register makes them
   available. */
enum { SN_SCALAR = 0, SN_AVX2 = 1, SN_AVX512 = 2, SN_NEON = 3, SN_RTL = 4, SN_SIMD_NUMBERS = 5 };

/* The functions of one implementation of a codec: sn_encode, sn_decode_part and sn_roundtrip without the codec's number.
   All bytes of `body` are readable. */
typedef size_t sn_encoder(int parameter, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                          size_t capacity, size_t *consumed);
typedef ptrdiff_t sn_decoder(int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count);
typedef void sn_roundtripper(int parameter, const uint8_t *words, size_t count, uint8_t *out);

/* Returns the name of an implementation, or NULL if the number is unknown. */
const char *sn_simd_name(int simd);

/* Returns 1 if the implementation is built in and runs on this CPU. */
int sn_simd_available(int simd);

/* Returns the implementation in use: the fastest available one, unless another was selected. */
int sn_simd(void);

/* Selects an implementation for all threads. Returns 0, or -1 if it is not available. */
int sn_simd_select(int simd);

/* Makes SN_RTL available, with these functions for a codec with a parameter from `lowest` to `highest`; other codecs and
   parameters use the reference. Not while SN_RTL is selected. Returns 0, or -1 if the codec does not exist. */
int sn_rtl_register(int codec, int lowest, int highest, sn_encoder *encode, sn_decoder *decode,
                    sn_roundtripper *roundtrip);

/* Returns the codec's name and the range of its parameter, or NULL if the number is unknown. */
const char *sn_codec_describe(int codec, int *lowest, int *highest);

/* Returns how a text names the codec's parameter, or NULL if by its number (or the codec does not accept it). */
const char *sn_codec_parameter_name(int codec, int parameter);

/* Returns 1 if the codec encodes the words of a coding block together, so that a word's decoded value depends on its
   neighbours, and 0 if each is encoded alone (or the codec does not exist). */
int sn_codec_has_blocks(int codec);

/* Returns the words between two places where a tagged range of this codec may be cut: SN_CODING_BLOCK_WORDS, or a
   multiple of it. */
int sn_codec_block_words(int codec);

/* Returns 1 if sn_tag_counts can count the codec's vectors: its words have tags. */
int sn_codec_has_tags(int codec);

/* Returns 1 if the codec is built in and accepts this parameter. */
int sn_codec_valid(int codec, int parameter);

/* Returns the maximum bytes of `count` encoded words; 0 for an unknown codec. */
size_t sn_encoded_bound(int codec, int parameter, size_t count);

/* Returns the minimum bytes of `count` encoded words; 0 for an unknown codec. Bytes that claim more words are
   malformed, which is found before memory is allocated for the words. */
size_t sn_encoded_least(int codec, int parameter, size_t count);

/* Encodes the longest prefix of `count` words that fits into `capacity` bytes and ends at an allowed cut: after `first`
   words (1..n: the rest of a coding block begun earlier; n if aligned, where n is sn_codec_block_words), after
   `first` + n i words, or after all. A codec with blocks stops after `first` words if these are fewer than n, so that
   its blocks are coding blocks however a range is cut. Returns the bytes written; `*consumed` receives the words consumed, 0 if not even the first coding
   block fits. Codec and parameter must be valid. */
size_t sn_encode(int codec, int parameter, const uint8_t *words, size_t count, size_t first,
                 uint8_t *out, size_t capacity, size_t *consumed);

/* Decodes exactly `length` bytes to exactly `count` words. Returns 0, or -1 if the body ends early or late or is
   malformed in a way that matters for safety; `words` is then unspecified. */
int sn_decode(int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count);

/* Decodes `count` words from the start of a body of at least `length` bytes: all remaining words, or a multiple of
   SN_PART_WORDS, behind which decoding continues. Returns the bytes consumed, or -1 where sn_decode would. */
ptrdiff_t sn_decode_part(int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count);

/* Computes out = decode(encode(words)) without the bytes in between. `out` may be `words`. */
void sn_roundtrip(int codec, int parameter, const uint8_t *words, size_t count, uint8_t *out);

/* Counts the vectors of an encoded body by tag: 0, 8, 16 and 32 bits (Table III of Li et al.) to counts[0..3]. Returns
   0, or -1 where sn_decode would, and for codecs without such vectors. */
int sn_tag_counts(int codec, int parameter, const uint8_t *body, size_t length, size_t count, uint64_t *counts);

/* What codec 5 with `bits` (3..6) a word is made of, for implementations elsewhere: 2^(bits - 1) levels, a threshold
   less, and 128 words whose highest bits are the sign changes. */
typedef struct {
    const float *levels;
    const float *thresholds;
    const uint32_t *signs;
} sn_rht_parts;

sn_rht_parts sn_rht_parts_of(int bits);

#endif
