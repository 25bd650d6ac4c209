/* Codec 4 with NEON, bit for bit as truncate.c, which handles the ends too short for whole coding blocks. Words are
   codes at the top of their lanes already. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_NEON
#include "codecs/lanes.h"
#include "codecs/lanes_neon.h"

static SN_INLINE void encode_coding_block(sn_writer *writer, int bits, const uint8_t *words, unsigned count)
{
    uint32_t whole[SN_CODING_BLOCK_WORDS];
    if (count < SN_CODING_BLOCK_WORDS) {
        sn_load_coding_block(whole, words, count);
        words = (const uint8_t *)whole;
    }
    sn_pack_quads(writer->out, sn_load_quads(words), (unsigned)bits, sn_kind_of_width((unsigned)bits));
    writer->out += count > SN_LANES ? 2 * bits : bits;
}

/* Encodes whole coding blocks while each has all the space that it may touch. */
static SN_INLINE sn_progress encode_whole(sn_progress at, unsigned bits, const uint8_t *words, size_t count,
                                          const uint8_t *end, sn_width_kind kind)
{
    while (count - at.done >= SN_CODING_BLOCK_WORDS && end - at.writer.out >= SN_CODING_BLOCK_BOUND) {
        at.before = at.writer;
        sn_pack_quads(at.writer.out, sn_load_quads(words + 4 * at.done), bits, kind);
        at.writer.out += 2 * bits;
        at.done += SN_CODING_BLOCK_WORDS;
    }
    return at;
}

size_t sn_truncate_encode_neon(int bits, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                               size_t capacity, size_t *consumed)
{
    const unsigned width = (unsigned)bits;
    sn_progress at = sn_start(out);
    uint8_t *const end = out + capacity;
    switch (sn_kind_of_width(width)) {
    case SN_BYTES:
        at = encode_whole(at, width, words, count, end, SN_BYTES);
        break;
    case SN_NARROW:
        at = encode_whole(at, width, words, count, end, SN_NARROW);
        break;
    case SN_WIDE:
        at = encode_whole(at, width, words, count, end, SN_WIDE);
        break;
    }
    const sn_block_codec codec = {encode_coding_block, bits};
    return sn_finish_coding_blocks(codec, at, words, count, first, end, consumed);
}

/* Decodes whole coding blocks while all bytes that each may touch are readable. Returns the words. */
static SN_INLINE size_t decode_whole(unsigned bits, const uint8_t *in, const uint8_t *end, uint8_t *words,
                                     size_t count, sn_width_kind kind)
{
    size_t done = 0;
    for (; count - done >= SN_CODING_BLOCK_WORDS && end - in >= 4 * SN_CODING_BLOCK_WORDS; done += SN_CODING_BLOCK_WORDS) {
        sn_store_quads(words + 4 * done, sn_unpack_quads(in, bits, kind));
        in += 2 * bits;
    }
    return done;
}

ptrdiff_t sn_truncate_decode_neon(int bits, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const unsigned width = (unsigned)bits;
    const uint8_t *const end = body + length;
    size_t done = 0;
    switch (sn_kind_of_width(width)) {
    case SN_BYTES:
        done = decode_whole(width, body, end, words, count, SN_BYTES);
        break;
    case SN_NARROW:
        done = decode_whole(width, body, end, words, count, SN_NARROW);
        break;
    case SN_WIDE:
        done = decode_whole(width, body, end, words, count, SN_WIDE);
        break;
    }
    const size_t used = done / SN_LANES * width;
    const ptrdiff_t rest = sn_truncate_decode(bits, body + used, length - used, words + 4 * done, count - done);
    return rest < 0 ? -1 : (ptrdiff_t)used + rest;
}

void sn_truncate_roundtrip_neon(int bits, const uint8_t *words, size_t count, uint8_t *out)
{
    const uint32x4_t kept = vdupq_n_u32(0xffffffffu << (32 - bits));
    for (; count >= SN_CODING_BLOCK_WORDS; count -= SN_CODING_BLOCK_WORDS) {
        sn_quads block = sn_load_quads(words);
        for (unsigned i = 0; i < 4; i++)
            block.quad[i] = vandq_u32(block.quad[i], kept);
        sn_store_quads(out, block);
        words += 4 * SN_CODING_BLOCK_WORDS;
        out += 4 * SN_CODING_BLOCK_WORDS;
    }
    sn_truncate_roundtrip(bits, words, count, out);
}
#endif
