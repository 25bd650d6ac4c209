/* Encoding by groups of eight bursts where there is room: shared by the quick kernels of codecs 1 and 2, given by how
   they encode a coding block and how they see that a group is silent. */
#ifndef SOFTNIC_GROUPS_H
#define SOFTNIC_GROUPS_H
#include "bursts.h"
#include "coding_blocks.h"

/* Before a loop over the coding blocks of a group. */
#if defined(__clang__)
#define SN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SN_UNROLL _Pragma("GCC unroll 4")
#endif

/* What is encoded and decoded at once where there is room: eight bursts, codec 2's group. */
enum { SN_GROUP_BURSTS = 8, SN_GROUP_WORDS = SN_GROUP_BURSTS * SN_BURST_WORDS };

/* Bytes that a group's bursts may touch, a flag byte before them included. Encoders take a group's short way only
   with so much room, of which a silent group leaves enough for any coding block. */
enum { SN_GROUP_BOUND = 1 + SN_GROUP_BURSTS * SN_BURST_BOUND };

/* Whether the magnitudes of a group's words are all at most `most`, so that it has no vectors. */
typedef int sn_silence(const uint8_t *words, int32_t most);

/* Opens a group of codec 2: its flag byte comes first. */
static SN_INLINE void sn_open_group(sn_writer *writer)
{
    writer->group = writer->out++;
    writer->group_flags = 0;
    writer->group_bursts = 0;
}

/* The rest of sn_encode (codecs.h). `flagged` is 1 for codec 2, whose coding blocks open groups and count bursts. */
static SN_INLINE size_t sn_encode_by_groups(sn_coding_block_encoder *encode, sn_silence *is_silent, int32_t most,
                                            int flagged, int k, const uint8_t *words, size_t count, size_t first,
                                            uint8_t *out, size_t capacity, size_t *consumed)
{
    sn_progress at = sn_start(out);
    uint8_t *const end = out + capacity;
    while (count - at.done >= SN_GROUP_WORDS && end - at.writer.out >= SN_GROUP_BOUND) {
        const uint8_t *const group = words + 4 * at.done;
        at.writer.group_bursts = 0; /* the first coding block opens a group, where codec 2 needs one */
        if (!is_silent(group, most)) {
            SN_UNROLL
            for (unsigned i = 0; i < SN_GROUP_WORDS; i += SN_CODING_BLOCK_WORDS) {
                at.before = at.writer;
                encode(&at.writer, k, group + 4 * i, SN_CODING_BLOCK_WORDS);
            }
        } else if (flagged) { /* the next coding block fits behind a silent group: no need of `before` */
            sn_open_group(&at.writer);
            at.writer.group_bursts = SN_GROUP_BURSTS;
        } else {
            memset(at.writer.out, 0, 2 * SN_GROUP_BURSTS);
            at.writer.out += 2 * SN_GROUP_BURSTS;
        }
        if (flagged)
            *at.writer.group = (uint8_t)at.writer.group_flags;
        at.done += SN_GROUP_WORDS;
    }
    return sn_finish_coding_blocks(encode, at, k, words, count, first, end, consumed);
}

#endif
