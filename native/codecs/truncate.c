/* Codec 4: the most significant bits of each word, after the byte-wise bit packing (ADT) of Zhuang et al. and the
   truncation baselines of Li et al. Nothing is rounded: a magnitude never grows, an infinity stays one, and a NaN whose
   kept mantissa bits are all zero becomes an infinity. This is the scalar reference: SIMD kernels are tested against
   these functions. */
#include "codecs/kernels.h"
#include "codecs/lanes.h"
#include "codecs/coding_blocks.h"

/* Returns a mask of the kept bits. */
static inline uint32_t kept(int bits)
{
    return 0xffffffffu << (32 - bits);
}

static SN_INLINE void encode_coding_block(sn_writer *writer, int bits, const uint8_t *words, unsigned count)
{
    const unsigned drop = 32 - (unsigned)bits;
    uint32_t lanes[SN_CODING_BLOCK_WORDS];
    sn_load_coding_block(lanes, words, count);
    for (unsigned i = 0; i < SN_CODING_BLOCK_WORDS; i++)
        lanes[i] >>= drop;
    for (unsigned i = 0; i < count; i += SN_LANES)
        writer->out = sn_pack_lanes(writer->out, lanes + i, (unsigned)bits);
}

size_t sn_truncate_encode(int bits, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                          size_t *consumed)
{
    const sn_block_codec codec = {encode_coding_block, bits};
    return sn_encode_coding_blocks(codec, words, count, first, out, capacity, consumed);
}

ptrdiff_t sn_truncate_decode(int bits, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const unsigned drop = 32 - (unsigned)bits;
    const size_t size = sn_truncate_size(bits, count);
    if (length < size)
        return -1;
    while (count) {
        const unsigned some = count < SN_LANES ? (unsigned)count : SN_LANES;
        uint32_t lanes[SN_LANES];
        body = sn_unpack_lanes(body, lanes, (unsigned)bits);
        if (some < SN_LANES && !sn_padding_is_zero(lanes, some, SN_LANES))
            return -1;
        for (unsigned i = 0; i < SN_LANES; i++)
            lanes[i] <<= drop;
        if (some == SN_LANES)
            memcpy(words, lanes, sizeof lanes);
        else
            memcpy(words, lanes, 4 * (size_t)some);
        words += 4 * (size_t)some;
        count -= some;
    }
    return (ptrdiff_t)size;
}

void sn_truncate_roundtrip(int bits, const uint8_t *words, size_t count, uint8_t *out)
{
    const uint32_t mask = kept(bits);
    for (size_t i = 0; i < count; i++)
        sn_store32(out + 4 * i, sn_load32(words + 4 * i) & mask);
}

size_t sn_truncate_size(int bits, size_t count)
{
    if (count > SIZE_MAX / 8)
        return SIZE_MAX;
    return (size_t)bits * (count / SN_LANES + (count % SN_LANES != 0));
}
