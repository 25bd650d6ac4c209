/* Adjacent lanes of a few bits, from bit 0 of the first byte up: the layout of codecs 3 and 4. Eight lanes of `width`
   bits take `width` whole bytes, so a coding block is two such groups and starts at a byte too. */
#ifndef SOFTNIC_LANES_H
#define SOFTNIC_LANES_H
#include "words.h"

enum { SN_LANES = 8 };

/* Writes the low `width` (1..32) bits of eight lanes, whose other bits must be zero. Returns the end. */
static SN_INLINE uint8_t *sn_pack_lanes(uint8_t *out, const uint32_t *lanes, unsigned width)
{
    uint64_t bits = 0;
    unsigned held = 0;
    if (width == 8) {
        for (unsigned i = 0; i < SN_LANES; i++)
            out[i] = (uint8_t)lanes[i];
        return out + 8;
    }
    if (width == 16) {
        for (unsigned i = 0; i < SN_LANES; i++)
            sn_store16(out + 2 * i, (uint16_t)lanes[i]);
        return out + 16;
    }
    if (width == 32) {
        memcpy(out, lanes, 4 * SN_LANES);
        return out + 32;
    }
    for (unsigned i = 0; i < SN_LANES; i++) {
        bits |= (uint64_t)lanes[i] << held;
        held += width;
        if (held >= 32) {
            sn_store32(out, (uint32_t)bits);
            out += 4;
            bits >>= 32;
            held -= 32;
        }
    }
    for (; held; held -= 8, bits >>= 8)
        *out++ = (uint8_t)bits;
    return out;
}

/* Reads eight lanes and no other byte. Returns their end. */
static SN_INLINE const uint8_t *sn_unpack_lanes(const uint8_t *in, uint32_t *lanes, unsigned width)
{
    const uint8_t *const end = in + width;
    const uint64_t mask = ((uint64_t)1 << width) - 1;
    uint64_t bits = 0;
    unsigned held = 0;
    if (width == 8) {
        for (unsigned i = 0; i < SN_LANES; i++)
            lanes[i] = in[i];
        return end;
    }
    if (width == 16) {
        for (unsigned i = 0; i < SN_LANES; i++)
            lanes[i] = sn_load16(in + 2 * i);
        return end;
    }
    if (width == 32) {
        memcpy(lanes, in, 4 * SN_LANES);
        return end;
    }
    for (unsigned i = 0; i < SN_LANES; i++) {
        if (held < width && end - in >= 4) {
            bits |= (uint64_t)sn_load32(in) << held;
            in += 4;
            held += 32;
        }
        for (; held < width; held += 8)
            bits |= (uint64_t)*in++ << held;
        lanes[i] = (uint32_t)(bits & mask);
        bits >>= width;
        held -= width;
    }
    return end;
}

/* Returns whether the lanes behind the first `count` of `all` are zero, as the padding of a last group must be. */
static inline int sn_padding_is_zero(const uint32_t *lanes, unsigned count, unsigned all)
{
    uint32_t any = 0;
    for (unsigned i = count; i < all; i++)
        any |= lanes[i];
    return any == 0;
}

#endif
