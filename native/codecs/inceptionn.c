/* Codec 1: INCEPTIONN's gradient codec, Algorithms 2 and 3 of Li et al. (MICRO 2018), bit for bit. The paper shifts the
   mantissa, with its leading one, right by 127 - e and keeps the top 15 or 7 bits. For |x| < 1 that is truncated fixed
   point: floor(|x| * 2^15), or the same without its low 8 bits. Products with powers of two are exact, so floats give
   the same bits as the paper's shifts and vectorise without per-lane shifts. This is the scalar reference: SIMD kernels
   are tested against these functions. */
#include "codecs/bursts.h"
#include "codecs/kernels.h"
#include "codecs/coding_blocks.h"

/* Magnitudes (bit patterns without sign) from which a word has 8, 16, 32 bits. */
typedef struct {
    int32_t from_8;
    int32_t from_16;
} sn_thresholds;

static const int32_t ONE = 127 << 23;

static inline sn_thresholds thresholds_of(int k)
{
    const int32_t b = 127 - k;
    return (sn_thresholds){b << 23, (b + (k + 1) / 2) << 23};
}

/* Returns the kind of a word's vector, and its bits in `*vector`. */
static SN_INLINE sn_kind split(uint32_t word, sn_thresholds from, uint32_t *vector)
{
    const int32_t magnitude = (int32_t)(word & 0x7fffffff);
    const uint32_t from_8 = sn_mask(magnitude >= from.from_8);
    const uint32_t from_16 = sn_mask(magnitude >= from.from_16);
    const uint32_t is_32 = sn_mask(magnitude >= ONE);
    const sn_kind kind = {from_8 & ~from_16, from_16 & ~is_32, is_32};
    const float below_one = sn_float_of((uint32_t)magnitude & ~is_32);
    const uint32_t fixed = (uint32_t)(int32_t)(below_one * 0x1p15f) | (word >> 16 & 0x8000);
    *vector = (fixed >> 8 & kind.is_8) | (fixed & kind.is_16) | (word & is_32);
    return kind;
}

/* Returns the decoded word of a vector. Zero is +0.0, whatever its sign. */
static SN_INLINE uint32_t join(uint32_t vector, sn_kind kind)
{
    const uint32_t aligned = (vector << 8 & kind.is_8) | (vector & kind.is_16);
    const int32_t fixed = (int32_t)(aligned & 0x7fff);
    const uint32_t sign = (aligned & 0x8000) << 16 & sn_mask(fixed != 0);
    return sn_bits_of((float)fixed * 0x1p-15f) | sign | (vector & kind.is_32);
}

static SN_INLINE void encode_coding_block(sn_writer *writer, int k, const uint8_t *words, unsigned count)
{
    const sn_thresholds from = thresholds_of(k);
    uint32_t lanes[SN_CODING_BLOCK_WORDS], vector[SN_CODING_BLOCK_WORDS], size[SN_CODING_BLOCK_WORDS];
    sn_load_coding_block(lanes, words, count);
    for (unsigned i = 0; i < SN_CODING_BLOCK_WORDS; i++)
        size[i] = sn_size_of(split(lanes[i], from, &vector[i]));
    for (unsigned i = 0; i < count; i += SN_BURST_WORDS)
        writer->out = sn_pack_burst(writer->out, sn_tag_word(size + i), vector + i, size + i);
}

size_t sn_inceptionn_encode(int k, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                            size_t *consumed)
{
    const sn_block_codec codec = {encode_coding_block, k};
    return sn_encode_coding_blocks(codec, words, count, first, out, capacity, consumed);
}

/* Visits every burst. Returns the bytes of all, or -1. */
static SN_INLINE ptrdiff_t walk(const uint8_t *body, size_t length, size_t count, sn_burst_visitor *visit,
                                void *context)
{
    const uint8_t *in = body, *const end = body + length;
    while (count) {
        const unsigned lanes = count < SN_BURST_WORDS ? (unsigned)count : SN_BURST_WORDS;
        in = sn_visit_burst(in, end, lanes, visit, context);
        if (!in)
            return -1;
        count -= lanes;
    }
    return in - body;
}

/* `context` points to the output. */
static SN_INLINE void decode_burst(void *context, const uint8_t *in, size_t available, uint32_t tags, unsigned count)
{
    uint8_t **words = context;
    uint8_t scratch[4 * SN_BURST_WORDS];
    uint32_t vector[SN_BURST_WORDS], lanes[SN_BURST_WORDS];
    sn_unpack_burst(sn_readable(in, available, scratch, sizeof scratch), tags, vector);
    SN_VECTORISE
    for (unsigned i = 0; i < SN_BURST_WORDS; i++)
        lanes[i] = join(vector[i], sn_kind_of(tags, sn_lanes[i]));
    if (count == SN_BURST_WORDS)
        memcpy(*words, lanes, sizeof lanes);
    else
        memcpy(*words, lanes, 4 * (size_t)count);
    *words += 4 * (size_t)count;
}

ptrdiff_t sn_inceptionn_decode(int k, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    (void)k;
    return walk(body, length, count, decode_burst, &words);
}

int sn_inceptionn_tags(const uint8_t *body, size_t length, size_t count, uint64_t *counts)
{
    return walk(body, length, count, sn_count_tags, counts) == (ptrdiff_t)length ? 0 : -1;
}

void sn_inceptionn_roundtrip(int k, const uint8_t *words, size_t count, uint8_t *out)
{
    const sn_thresholds from = thresholds_of(k);
    uint32_t lanes[SN_CODING_BLOCK_WORDS];
    while (count) {
        const unsigned some = count < SN_CODING_BLOCK_WORDS ? (unsigned)count : SN_CODING_BLOCK_WORDS;
        sn_load_coding_block(lanes, words, some);
        for (unsigned i = 0; i < SN_CODING_BLOCK_WORDS; i++) {
            uint32_t vector;
            const sn_kind kind = split(lanes[i], from, &vector);
            lanes[i] = join(vector, kind);
        }
        sn_store_coding_block(out, lanes, some);
        words += 4 * some;
        out += 4 * some;
        count -= some;
    }
}

size_t sn_inceptionn_least(int k, size_t count)
{
    (void)k;
    return count / SN_BURST_WORDS * 2 + (count % SN_BURST_WORDS ? 2 : 0);
}

size_t sn_inceptionn_bound(int k, size_t count)
{
    return sn_inceptionn_least(k, count) + 4 * count;
}
