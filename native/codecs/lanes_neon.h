/* Adjacent lanes of a few bits (lanes.h) with NEON, shared by codecs 3 and 4. A coding block is two groups of eight
   lanes, each of as many bytes as a lane has bits. Codes are at the top of their lanes. Widths of whole bytes take one
   shuffle per four lanes. Otherwise every byte of a group is assembled from at most three bytes of its lanes, and every
   byte of a lane from two bytes of the group, each shifted by a few bits. */
#ifndef SOFTNIC_LANES_NEON_H
#define SOFTNIC_LANES_NEON_H
#include <arm_neon.h>

#include "codecs/coding_blocks.h"

enum { SN_NARROWEST = 4, SN_WIDEST = 32, SN_WIDTHS = SN_WIDEST - SN_NARROWEST + 1 };

/* For each of 32 bytes, its source byte (32 and above: none) and its left shift. */
typedef struct {
    uint8_t from[32];
    int8_t up[32];
} sn_moves;

/* By width, from SN_NARROWEST on. Packing starts from codes at the bottom of their lanes; unpacking ends there, with
   undefined bits above. */
extern const sn_moves sn_packing[SN_WIDTHS][3];
extern const sn_moves sn_unpacking[SN_WIDTHS][2];

/* The bytes of codes of 8, 16, 24, 32 bits in four lanes, and the inverse. */
extern const uint8_t sn_packing_bytes[4][16];
extern const uint8_t sn_unpacking_bytes[4][16];

/* Codes of whole bytes, of up to 16 bits (a group is one register), of more (it is two). */
typedef enum { SN_BYTES, SN_NARROW, SN_WIDE } sn_width_kind;

static inline sn_width_kind sn_kind_of_width(unsigned width)
{
    return width % 8 == 0 ? SN_BYTES : width <= 16 ? SN_NARROW : SN_WIDE;
}

/* A coding block: the lanes of its quads. */
typedef struct {
    uint32x4_t quad[4];
} sn_quads;

static SN_INLINE sn_quads sn_load_quads(const uint8_t *words)
{
    sn_quads loaded;
    for (unsigned i = 0; i < 4; i++)
        loaded.quad[i] = vreinterpretq_u32_u8(vld1q_u8(words + 16 * i));
    return loaded;
}

static SN_INLINE void sn_store_quads(uint8_t *words, sn_quads block)
{
    for (unsigned i = 0; i < 4; i++)
        vst1q_u8(words + 16 * i, vreinterpretq_u8_u32(block.quad[i]));
}

/* Assembles one register of a group by some of its moves. */
static SN_INLINE uint8x16_t sn_moved(uint8x16x2_t bytes, const sn_moves *moves, unsigned count, unsigned half)
{
    uint8x16_t joined = vdupq_n_u8(0);
    for (unsigned i = 0; i < count; i++) {
        const uint8x16_t from = vld1q_u8(moves[i].from + 16 * half);
        joined = vorrq_u8(joined, vshlq_u8(vqtbl2q_u8(bytes, from), vld1q_s8(moves[i].up + 16 * half)));
    }
    return joined;
}

/* Writes a coding block of codes, 2 * width bytes; may touch 64. */
static SN_INLINE void sn_pack_quads(uint8_t *out, sn_quads codes, unsigned width, sn_width_kind kind)
{
    const sn_moves *const moves = sn_packing[width - SN_NARROWEST];
    const int32x4_t down = vdupq_n_s32((int32_t)width - 32);
    for (unsigned i = 0; i < 4; i++) {
        if (kind == SN_BYTES) {
            const uint8x16_t from = vld1q_u8(sn_packing_bytes[width / 8 - 1]);
            vst1q_u8(out + i * width / 2, vqtbl1q_u8(vreinterpretq_u8_u32(codes.quad[i]), from));
        }
        codes.quad[i] = vshlq_u32(codes.quad[i], down);
    }
    for (unsigned group = 0; group < 2 && kind != SN_BYTES; group++) {
        const uint8x16x2_t bytes = {{vreinterpretq_u8_u32(codes.quad[2 * group]),
                                     vreinterpretq_u8_u32(codes.quad[2 * group + 1])}};
        vst1q_u8(out + group * width, sn_moved(bytes, moves, 3, 0));
        if (kind == SN_WIDE)
            vst1q_u8(out + group * width + 16, sn_moved(bytes, moves, 3, 1));
    }
}

/* Reads a coding block of codes; may touch 64 bytes. */
static SN_INLINE sn_quads sn_unpack_quads(const uint8_t *in, unsigned width, sn_width_kind kind)
{
    const sn_moves *const moves = sn_unpacking[width - SN_NARROWEST];
    const int32x4_t up = vdupq_n_s32(32 - (int32_t)width);
    sn_quads codes;
    for (unsigned i = 0; i < 4; i++) {
        if (kind == SN_BYTES) {
            const uint8x16_t from = vld1q_u8(sn_unpacking_bytes[width / 8 - 1]);
            codes.quad[i] = vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(in + i * width / 2), from));
        } else {
            const uint8_t *const group = in + i / 2 * width;
            const uint8x16x2_t bytes = {{vld1q_u8(group), kind == SN_WIDE ? vld1q_u8(group + 16) : vdupq_n_u8(0)}};
            codes.quad[i] = vshlq_u32(vreinterpretq_u32_u8(sn_moved(bytes, moves, 2, i % 2)), up);
        }
    }
    return codes;
}

#endif
