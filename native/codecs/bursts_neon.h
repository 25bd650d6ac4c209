/* Bursts (bursts.h) with NEON, which every AArch64 CPU has, shared by codecs 1 and 2. Vectors are at the top of their
   lanes (shuffles.h). A coding block of 16 words is four registers, its quads. */
#ifndef SOFTNIC_BURSTS_NEON_H
#define SOFTNIC_BURSTS_NEON_H
#include <arm_neon.h>

#include "codecs/groups.h"
#include "codecs/shuffles.h"

enum { SN_QUADS = 4 };

/* A coding block split: the tag words of its two bursts, the first in the low half, and the vectors of its quads. */
typedef struct {
    uint32_t tags;
    uint32x4_t quad[SN_QUADS];
} sn_split_coding_block;

static SN_INLINE uint32x4_t sn_load_quad(const uint8_t *words)
{
    return vreinterpretq_u32_u8(vld1q_u8(words));
}

static SN_INLINE void sn_store_quad(uint8_t *words, uint32x4_t lanes)
{
    vst1q_u8(words, vreinterpretq_u8_u32(lanes));
}

static SN_INLINE float32x4_t sn_magnitudes(uint32x4_t words)
{
    return vabsq_f32(vreinterpretq_f32_u32(words));
}

/* Returns `lanes` with the signs of `words`. */
static SN_INLINE uint32x4_t sn_with_signs(uint32x4_t lanes, uint32x4_t words)
{
    return vbslq_u32(vdupq_n_u32(0x80000000), words, lanes);
}

/* Returns the odd 16-bit elements of two registers, and the odd and even bytes. */
static SN_INLINE uint16x8_t sn_odd_halves(uint32x4_t a, uint32x4_t b)
{
    return vuzp2q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
}

static SN_INLINE uint16x8_t sn_even_halves(uint32x4_t a, uint32x4_t b)
{
    return vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
}

static SN_INLINE uint8x16_t sn_odd_bytes(uint16x8_t a, uint16x8_t b)
{
    return vuzp2q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

static SN_INLINE uint8x16_t sn_even_bytes(uint16x8_t a, uint16x8_t b)
{
    return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

/* Returns the two tag words of 16 lanes, given as bytes of -tag (sums of comparisons): each is shifted to its two bits
   of a quad's byte, and pairwise sums merge them. */
static SN_INLINE uint32_t sn_join_tags(uint8x16_t minus_tags)
{
    const uint8x16_t places = vreinterpretq_u8_u32(vdupq_n_u32(0xc0f0fcff)); /* -1, -4, -16, -64 */
    const uint8x16_t placed = vmulq_u8(minus_tags, places);
    const uint8x16_t pairs = vpaddq_u8(placed, placed);
    return vgetq_lane_u32(vreinterpretq_u32_u8(vpaddq_u8(pairs, pairs)), 0);
}

static SN_INLINE uint8_t *sn_pack_quad(uint8_t *out, uint32_t tags, uint32x4_t vectors)
{
    vst1q_u8(out, vqtbl1q_u8(vreinterpretq_u8_u32(vectors), vld1q_u8(sn_compact[tags])));
    return out + sn_ends[tags][3];
}

/* sn_pack_burst for burst 0 or 1 of a coding block. */
static SN_INLINE uint8_t *sn_pack_split(uint8_t *out, const sn_split_coding_block *split, unsigned burst)
{
    const uint32_t tags = split->tags >> 16 * burst & 0xffff;
    sn_store16(out, (uint16_t)tags);
    out = sn_pack_quad(out + 2, tags & 0xff, split->quad[2 * burst]);
    return sn_pack_quad(out, tags >> 8, split->quad[2 * burst + 1]);
}

/* Returns the largest magnitudes, lane by lane, of `count` quads. */
static SN_INLINE uint32x4_t sn_greatest(const uint8_t *words, unsigned count)
{
    uint32x4_t greatest = vdupq_n_u32(0);
    for (unsigned i = 0; i < count; i++)
        greatest = vmaxq_u32(greatest, vreinterpretq_u32_f32(sn_magnitudes(sn_load_quad(words + 16 * i))));
    return greatest;
}

/* As sn_zero_test. */
static SN_INLINE int sn_is_zero_group(const uint8_t *words, int32_t most)
{
    const unsigned first = 2; /* in most data that is not all zero, the first burst decide */
    if (vmaxvq_u32(sn_greatest(words, first)) > (uint32_t)most)
        return 0;
    return vmaxvq_u32(sn_greatest(words + 16 * first, SN_GROUP_WORDS / 4 - first)) <= (uint32_t)most;
}

/* Returns where a lane's two tag bits are in the tag word of its burst, which every lane holds twice. */
static SN_INLINE uint32x4_t sn_tag_places(unsigned quad)
{
    static const uint32_t places[2][4] = {{3, 3 << 2, 3 << 4, 3 << 6}, {3 << 8, 3 << 10, 3 << 12, 3 << 14}};
    return vld1q_u32(places[quad]);
}

/* Returns the words of four lanes with their vectors at the top; `tags` are their own bits of the tag word
   (sn_tag_places). `of_8` and `of_16` are the factors of 8-bit and 16-bit vectors, taken as integers in these places. A
   zero vector is +0.0, whatever its sign: adding +0.0 turns -0.0 into it. */
static SN_INLINE uint32x4_t sn_join_quad(uint32x4_t lanes, uint32x4_t tags, uint32x4_t places, float of_8, float of_16)
{
    const uint32x4_t high = vandq_u32(places, vdupq_n_u32(0xaaaaaaaa)); /* the upper tag bit: set for 16 and 32 */
    const uint32x4_t is_32 = vceqq_u32(tags, places);
    const float32x4_t scale = vbslq_f32(vtstq_u32(tags, high), vdupq_n_f32(of_16), vdupq_n_f32(of_8));
    const uint32x4_t magnitude = vbicq_u32(lanes, vdupq_n_u32(0x80000000));
    const uint32x4_t value = sn_with_signs(vreinterpretq_u32_f32(vcvtq_f32_u32(magnitude)), lanes);
    const float32x4_t scaled = vfmaq_f32(vdupq_n_f32(0), vreinterpretq_f32_u32(value), scale);
    return vbslq_u32(is_32, lanes, vreinterpretq_u32_f32(scaled));
}

static SN_INLINE uint32x4_t sn_expand_quad(const uint8_t *in, size_t tags)
{
    return vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(in), vld1q_u8(sn_expand[tags])));
}

/* Decodes a burst whose tag word is at `in`; may touch SN_BURST_BOUND bytes. Returns its end. */
static SN_INLINE const uint8_t *sn_decode_burst(const uint8_t *in, float of_8, float of_16, uint8_t *words)
{
    const uint8_t *const low = in + 2;
    const size_t tags_low = in[0], tags_high = in[1];
    const uint8_t *const high = low + sn_ends[tags_low][3];
    const uint8_t *const end = high + sn_ends[tags_high][3]; /* the next burst depends on this only */
    const uint32x4_t tags = vreinterpretq_u32_u16(vdupq_n_u16(sn_load16(in)));
    const uint32x4_t first = sn_tag_places(0), second = sn_tag_places(1);
    sn_store_quad(words, sn_join_quad(sn_expand_quad(low, tags_low), vandq_u32(tags, first), first, of_8, of_16));
    sn_store_quad(words + 16,
                  sn_join_quad(sn_expand_quad(high, tags_high), vandq_u32(tags, second), second, of_8, of_16));
    return end;
}

#endif
