/* Codec 2: codec 1's tags and vectors with an error bound that holds, and one bit for a burst of zeros. q = round(|x| *
   2^(k-1)), half to even. The product is exact (or infinite, or of a denormal too small to matter), and adding 2^23 to
   a float below 2^23 rounds it to an integer, half to even, in the low mantissa bits. Above that, up to infinity and
   NaN, the sum's bit pattern only grows, so one comparison sends all of it as 32 bits. This is the scalar reference:
   SIMD kernels are tested against these functions. */
#include "codecs/bursts.h"
#include "codecs/kernels.h"
#include "codecs/coding_blocks.h"

enum { GROUP_BURSTS = 8, GROUP_WORDS = GROUP_BURSTS * SN_BURST_WORDS };

/* Returns 2^n for the exponents used here. */
static inline float power_of_two(int n)
{
    return sn_float_of((uint32_t)(127 + n) << 23);
}

/* Returns the kind of a word's vector, and its bits in `*vector`. `scale` is 2^(k-1). */
static SN_INLINE sn_kind split(uint32_t word, float scale, uint32_t *vector)
{
    const float rounded = sn_float_of(word & 0x7fffffff) * scale + 0x1p23f;
    const int32_t q = (int32_t)(sn_bits_of(rounded) - sn_bits_of(0x1p23f));
    const uint32_t from_8 = sn_mask(q > 0), from_16 = sn_mask(q > 127), is_32 = sn_mask(q > 32767);
    const sn_kind kind = {from_8 & ~from_16, from_16 & ~is_32, is_32};
    const uint32_t sign = word & 0x80000000;
    const uint32_t signs = (sign >> 24 & kind.is_8) | (sign >> 16 & kind.is_16);
    *vector = signs | ((uint32_t)q & ~is_32) | (word & is_32);
    return kind;
}

/* Returns the decoded word of a vector; `step` is 2^(1-k). No encoder writes q = 0; it decodes to +0.0. */
static SN_INLINE uint32_t join(uint32_t vector, sn_kind kind, float step)
{
    const int32_t q = (int32_t)(vector & ((0x7f & kind.is_8) | (0x7fff & kind.is_16)));
    const uint32_t signs = (vector << 24 & kind.is_8) | (vector << 16 & kind.is_16);
    const uint32_t sign = signs & 0x80000000 & sn_mask(q != 0);
    return sn_bits_of((float)q * step) | sign | (vector & kind.is_32);
}

static SN_INLINE void encode_coding_block(sn_writer *writer, int k, const uint8_t *words, unsigned count)
{
    const float scale = power_of_two(k - 1);
    uint32_t lanes[SN_CODING_BLOCK_WORDS], vector[SN_CODING_BLOCK_WORDS], size[SN_CODING_BLOCK_WORDS];
    sn_load_coding_block(lanes, words, count);
    for (unsigned i = 0; i < SN_CODING_BLOCK_WORDS; i++)
        size[i] = sn_size_of(split(lanes[i], scale, &vector[i]));
    if (writer->group_bursts % GROUP_BURSTS == 0) {
        writer->group = writer->out++;
        writer->group_flags = 0;
        writer->group_bursts = 0;
    }
    for (unsigned i = 0; i < SN_CODING_BLOCK_WORDS; i += SN_BURST_WORDS) {
        const uint32_t tags = sn_tag_word(size + i);
        uint8_t *const end = sn_pack_burst(writer->out, tags, vector + i, size + i);
        writer->out = tags ? end : writer->out;
        writer->group_flags |= (uint32_t)(tags != 0) << writer->group_bursts++;
    }
}

size_t sn_bounded_encode(int k, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
                         size_t *consumed)
{
    const sn_block_codec codec = {encode_coding_block, k};
    return sn_encode_coding_blocks(codec, words, count, first, out, capacity, consumed);
}

/* Visits every burst; zero ones as bursts without vectors. Returns the bytes of all, or -1. */
static SN_INLINE ptrdiff_t walk(const uint8_t *body, size_t length, size_t count, sn_burst_visitor *visit,
                                void *context)
{
    const uint8_t *in = body, *const end = body + length;
    while (count) {
        const unsigned group = count < GROUP_WORDS ? (unsigned)count : GROUP_WORDS;
        if (in == end)
            return -1;
        uint32_t flags = *in++;
        for (unsigned done = 0; done < group; done += SN_BURST_WORDS, flags >>= 1) {
            const unsigned lanes = group - done < SN_BURST_WORDS ? group - done : SN_BURST_WORDS;
            if (!(flags & 1)) {
                visit(context, in, (size_t)(end - in), 0, lanes);
                continue;
            }
            if (end - in >= 2 && sn_load16(in) == 0)
                return -1;
            in = sn_visit_burst(in, end, lanes, visit, context);
            if (!in)
                return -1;
        }
        if (flags)
            return -1;
        count -= group;
    }
    return in - body;
}

typedef struct {
    uint8_t *words;
    float step;
} sn_decoding;

static SN_INLINE void decode_burst(void *context, const uint8_t *in, size_t available, uint32_t tags, unsigned count)
{
    sn_decoding *const to = context;
    uint8_t scratch[4 * SN_BURST_WORDS];
    uint32_t vector[SN_BURST_WORDS], lanes[SN_BURST_WORDS] = {0};
    if (tags) {
        sn_unpack_burst(sn_readable(in, available, scratch, sizeof scratch), tags, vector);
        SN_VECTORISE
        for (unsigned i = 0; i < SN_BURST_WORDS; i++)
            lanes[i] = join(vector[i], sn_kind_of(tags, sn_lanes[i]), to->step);
    }
    if (count == SN_BURST_WORDS)
        memcpy(to->words, lanes, sizeof lanes);
    else
        memcpy(to->words, lanes, 4 * (size_t)count);
    to->words += 4 * (size_t)count;
}

ptrdiff_t sn_bounded_decode(int k, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    sn_decoding to = {words, power_of_two(1 - k)};
    return walk(body, length, count, decode_burst, &to);
}

int sn_bounded_tags(const uint8_t *body, size_t length, size_t count, uint64_t *counts)
{
    return walk(body, length, count, sn_count_tags, counts) == (ptrdiff_t)length ? 0 : -1;
}

void sn_bounded_roundtrip(int k, const uint8_t *words, size_t count, uint8_t *out)
{
    const float scale = power_of_two(k - 1), step = power_of_two(1 - k);
    uint32_t lanes[SN_CODING_BLOCK_WORDS];
    while (count) {
        const unsigned some = count < SN_CODING_BLOCK_WORDS ? (unsigned)count : SN_CODING_BLOCK_WORDS;
        sn_load_coding_block(lanes, words, some);
        for (unsigned i = 0; i < SN_CODING_BLOCK_WORDS; i++) {
            uint32_t vector;
            const sn_kind kind = split(lanes[i], scale, &vector);
            lanes[i] = join(vector, kind, step);
        }
        sn_store_coding_block(out, lanes, some);
        words += 4 * some;
        out += 4 * some;
        count -= some;
    }
}

size_t sn_bounded_least(int k, size_t count)
{
    (void)k;
    return count / GROUP_WORDS + (count % GROUP_WORDS != 0);
}

size_t sn_bounded_bound(int k, size_t count)
{
    return sn_bounded_least(k, count) + 2 * (count / SN_BURST_WORDS + (count % SN_BURST_WORDS != 0)) + 4 * count;
}
