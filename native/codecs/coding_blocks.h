/* Encoding into a buffer of limited size: shared by all codecs, so that all are cut by the same rules.

   A body is encoded in coding blocks of SN_CODING_BLOCK_WORDS words counted from its start. It may end at intervals
   of as many words, but offset by `first`, so there is one such place in each coding block, always at the same
   distance. A coding block that does not fit is tried up to that place; if that does not fit either, the coding
   block before is encoded again, up to there. This finds the longest prefix because no codec's output shrinks when
   words are added.

   Words may change while they are encoded, if an application writes to memory that it has passed for zero-copy
   sending. The encoding is then meaningless, but must stay within its buffer and hold the stated number of words. So
   lengths come from what was written, never from a second look at the words; and a coding block that is encoded
   again and has grown meanwhile is sent as zeros, which no codec encodes longer than other words. */
#ifndef SOFTNIC_CODING_BLOCKS_H
#define SOFTNIC_CODING_BLOCKS_H
#include <stddef.h>

#include "codecs/codecs.h"
#include "words.h"

/* Maximum bytes of one coding block of any codec, with its flags. */
enum { SN_CODING_BLOCK_BOUND = 4 * SN_CODING_BLOCK_WORDS + 8 };

static const uint8_t sn_zero_words[4 * SN_CODING_BLOCK_WORDS] = {0};

/* State of an encoder. A copy taken earlier allows to go back. */
typedef struct {
    uint8_t *out;
    uint8_t *group;       /* the open group's flag byte, for codecs that have one */
    uint32_t group_flags;
    uint32_t group_bursts; /* bursts seen in the open group */
} sn_writer;

/* Encodes `count` (1..SN_CODING_BLOCK_WORDS) words at writer->out; may touch SN_CODING_BLOCK_BOUND bytes there, and
   nothing before. Only the last coding block of a body has fewer than SN_CODING_BLOCK_WORDS words. */
typedef void sn_coding_block_encoder(sn_writer *writer, int parameter, const uint8_t *words, unsigned count);

/* A codec that is defined by its coding blocks, with its parameter. */
typedef struct {
    sn_coding_block_encoder *encode;
    int parameter;
} sn_block_codec;

/* Encodes one coding block if it fits before `end`; otherwise leaves writer and output unchanged. */
static SN_INLINE int sn_put_coding_block(sn_block_codec codec, sn_writer *writer, const uint8_t *words, unsigned count,
                                         uint8_t *end)
{
    if (end - writer->out >= SN_CODING_BLOCK_BOUND) {
        codec.encode(writer, codec.parameter, words, count);
    } else {
        uint8_t scratch[SN_CODING_BLOCK_BOUND];
        sn_writer trial = *writer;
        trial.out = scratch;
        codec.encode(&trial, codec.parameter, words, count);
        const ptrdiff_t size = trial.out - scratch;
        if (size > end - writer->out)
            return 0;
        memcpy(writer->out, scratch, (size_t)size);
        if (trial.group != writer->group)
            trial.group = writer->out + (trial.group - scratch);
        trial.out = writer->out + size;
        *writer = trial;
    }
    if (writer->group)
        *writer->group = (uint8_t)writer->group_flags;
    return 1;
}

/* Progress of an encoder: the words done, all in whole coding blocks, and where the last of them began. */
typedef struct {
    uint8_t *start;
    sn_writer writer;
    sn_writer before;
    size_t done;
} sn_progress;

static SN_INLINE sn_progress sn_start(uint8_t *out)
{
    const sn_writer writer = {out, NULL, 0, 0};
    return (sn_progress){out, writer, writer, 0};
}

/* The rest of sn_encode (codecs.h), up to `end`. */
static SN_INLINE size_t sn_finish_coding_blocks(sn_block_codec codec, sn_progress at, const uint8_t *words,
                                                size_t count, size_t first, uint8_t *end, size_t *consumed)
{
    const unsigned cut = first % SN_CODING_BLOCK_WORDS;
    sn_writer writer = at.writer, before = at.before;
    size_t done = at.done;
    while (done < count) {
        const unsigned some = count - done < SN_CODING_BLOCK_WORDS ? (unsigned)(count - done) : SN_CODING_BLOCK_WORDS;
        const sn_writer here = writer;
        if (sn_put_coding_block(codec, &writer, words + 4 * done, some, end)) {
            before = here;
            done += some;
            continue;
        }
        if (cut == 0)
            break;
        if (cut < some && sn_put_coding_block(codec, &writer, words + 4 * done, cut, end)) {
            done += cut;
        } else if (done) {
            writer = before;
            done -= SN_CODING_BLOCK_WORDS;
            if (!sn_put_coding_block(codec, &writer, words + 4 * done, cut, end))
                sn_put_coding_block(codec, &writer, sn_zero_words, cut, end); /* see above */
            done += cut;
        }
        break;
    }
    *consumed = done;
    return (size_t)(writer.out - at.start);
}

/* sn_encode (codecs.h). */
static SN_INLINE size_t sn_encode_coding_blocks(sn_block_codec codec, const uint8_t *words, size_t count, size_t first,
                                                uint8_t *out, size_t capacity, size_t *consumed)
{
    return sn_finish_coding_blocks(codec, sn_start(out), words, count, first, out + capacity, consumed);
}

/* Loads the words of a coding block, padded with zeros. */
static SN_INLINE void sn_load_coding_block(uint32_t *lanes, const uint8_t *words, unsigned count)
{
    if (count == SN_CODING_BLOCK_WORDS) {
        memcpy(lanes, words, 4 * SN_CODING_BLOCK_WORDS);
    } else {
        memset(lanes, 0, 4 * SN_CODING_BLOCK_WORDS);
        memcpy(lanes, words, 4 * (size_t)count);
    }
}

static SN_INLINE void sn_store_coding_block(uint8_t *words, const uint32_t *lanes, unsigned count)
{
    if (count == SN_CODING_BLOCK_WORDS)
        memcpy(words, lanes, 4 * SN_CODING_BLOCK_WORDS);
    else
        memcpy(words, lanes, 4 * (size_t)count);
}

#endif
