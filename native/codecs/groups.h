/* Encodes by groups of eight bursts where the buffer has space: shared by the SIMD kernels of codecs 1 and 2, which
   provide the encoding of a coding block and the test for a zero group. */
#ifndef SOFTNIC_GROUPS_H
#define SOFTNIC_GROUPS_H
#include "codecs/bursts.h"
#include "codecs/coding_blocks.h"

/* Goes before a loop over the coding blocks of a group. */
#if defined(__clang__)
#define SN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SN_UNROLL _Pragma("GCC unroll 4")
#endif

/* The unit of encoding and decoding: eight bursts, codec 2's group. */
enum { SN_GROUP_BURSTS = 8, SN_GROUP_WORDS = SN_GROUP_BURSTS * SN_BURST_WORDS };

/* Bytes that a group's bursts may touch, with the flag byte before them. The fast path requires this space, of which a
   zero group leaves enough for any coding block. */
enum { SN_GROUP_BOUND = 1 + SN_GROUP_BURSTS * SN_BURST_BOUND };

/* Returns whether the magnitudes of a group's words are all at most `most`, so that it has no vectors. */
typedef int sn_zero_test(const uint8_t *words, int32_t most);

/* Opens a group of codec 2, which starts with a flag byte. */
static SN_INLINE void sn_open_group(sn_writer *writer)
{
    writer->group = writer->out++;
    writer->group_flags = 0;
    writer->group_bursts = 0;
}

/* A codec that is encoded by groups. `most` is the second argument of `is_zero`; `flagged` is 1 for codec 2, whose coding
   blocks open groups and count bursts. */
typedef struct {
    sn_block_codec blocks;
    sn_zero_test *is_zero;
    int32_t most;
    int flagged;
} sn_group_codec;

/* sn_encode (codecs.h). */
static SN_INLINE size_t sn_encode_by_groups(sn_group_codec codec, const uint8_t *words, size_t count, size_t first,
                                            uint8_t *out, size_t capacity, size_t *consumed)
{
    sn_progress at = sn_start(out);
    uint8_t *const end = out + capacity;
    while (count - at.done >= SN_GROUP_WORDS && end - at.writer.out >= SN_GROUP_BOUND) {
        const uint8_t *const group = words + 4 * at.done;
        at.writer.group_bursts = 0; /* the first coding block opens a group, if codec 2 needs one */
        if (!codec.is_zero(group, codec.most)) {
            SN_UNROLL
            for (unsigned i = 0; i < SN_GROUP_WORDS; i += SN_CODING_BLOCK_WORDS) {
                at.before = at.writer;
                codec.blocks.encode(&at.writer, codec.blocks.parameter, group + 4 * i, SN_CODING_BLOCK_WORDS);
            }
        } else if (codec.flagged) { /* the next coding block fits behind a zero group, so `before` is not needed */
            sn_open_group(&at.writer);
            at.writer.group_bursts = SN_GROUP_BURSTS;
        } else {
            memset(at.writer.out, 0, 2 * SN_GROUP_BURSTS);
            at.writer.out += 2 * SN_GROUP_BURSTS;
        }
        if (codec.flagged)
            *at.writer.group = (uint8_t)at.writer.group_flags;
        at.done += SN_GROUP_WORDS;
    }
    return sn_finish_coding_blocks(codec.blocks, at, words, count, first, end, consumed);
}

#endif
