/* Codes of a few bits, packed from bit 0 of each byte up: for codecs 5 and 7. */
#ifndef SOFTNIC_CODES_H
#define SOFTNIC_CODES_H
#include "words.h"

/* Packs `m` codes of `b` (1..8) bits, each in a byte, eight to `b` bytes. Returns their end. */
static SN_INLINE uint8_t *sn_pack_codes(uint8_t *out, const uint8_t *codes, unsigned m, int b)
{
    const uint64_t ones = 0x00ff00ff00ff00ff, twos = 0x0000ffff0000ffff;
    for (unsigned i = 0; i < m; i += 8, out += b) {
        uint64_t eight = sn_load64(codes + i);
        eight = (eight & ones) | (eight >> 8 & ones) << b;
        eight = (eight & twos) | (eight >> 16 & twos) << 2 * b;
        eight = (eight & 0xffffffff) | eight >> 32 << 4 * b;
        memcpy(out, &eight, (size_t)b);
    }
    return out;
}

/* The reverse. Returns the end of the packed codes. */
static SN_INLINE const uint8_t *sn_unpack_codes(const uint8_t *in, uint8_t *codes, unsigned m, int b)
{
    const uint64_t four = ((uint64_t)1 << 4 * b) - 1, two = ((uint64_t)1 << 2 * b) - 1, one = ((uint64_t)1 << b) - 1;
    const uint64_t twos = two * 0x100000001, ones = one * 0x0001000100010001;
    for (unsigned i = 0; i < m; i += 8, in += b) {
        uint64_t eight = 0;
        memcpy(&eight, in, (size_t)b);
        eight = (eight & four) | (eight >> 4 * b & four) << 32;
        eight = (eight & twos) | (eight >> 2 * b & twos) << 16;
        sn_store64(codes + i, (eight & ones) | (eight >> b & ones) << 8);
    }
    return in;
}

#endif
