/* All encoders, and what is fused with them, on any words and any room. Input: codec (1 byte), parameter (1), words left
   of a coding block begun earlier (1), room (2), operation (1), the implementation held against the reference (1; bit 7: the words
   come again and again, so that few fill a group), then words.

   Whatever is asked for, nothing is written behind the room; every implementation writes the same; what was taken
   decodes to its round trip. What is fused works in small parts here, so that inputs reach over several. */
#include "codecs/codecs.h"
#include "codecs/combine.h"
#include "engines.h"
#include "fuzz.h"
#include "codecs/reduce.h"

enum { SMALL_PART_WORDS = 2 * SN_PART_WORDS, FULL = 640 };
#define SN_COMBINE_WORDS SMALL_PART_WORDS
#include "codecs/combine.c"
#undef SN_COMBINE_WORDS

typedef struct {
    int codec;
    int parameter;
    size_t first;
    size_t room;
    int operation;
} asked;

/* What encoding said and wrote. */
typedef struct {
    uint8_t *body;
    size_t length;
    size_t consumed;
} encoded;

static encoded encode(const asked *a, const uint8_t *words, size_t count)
{
    encoded e = {exactly(a->room), 0, 0};
    e.length = sn_encode(a->codec, a->parameter, words, count, a->first, e.body, a->room, &e.consumed);
    CHECK(e.length <= a->room && e.consumed <= count);
    const size_t block = (size_t)sn_codec_block_words(a->codec);
    CHECK(e.consumed == count || e.consumed % block == a->first % block || e.consumed == 0);
    return e;
}

static void check_same(encoded one, encoded other)
{
    CHECK(one.length == other.length && one.consumed == other.consumed && same(one.body, other.body, one.length));
}

static void check_decodes(const asked *a, encoded e, const uint8_t *words)
{
    uint8_t *expected = exactly(4 * e.consumed), *got = exactly(4 * e.consumed);
    sn_roundtrip(a->codec, a->parameter, words, e.consumed, expected);
    CHECK(sn_decode(a->codec, a->parameter, e.body, e.length, got, e.consumed) == 0);
    CHECK(same(got, expected, 4 * e.consumed));
    free(expected);
    free(got);
}

/* Fused or one after the other is the same. */
static void check_combined(const asked *a, encoded e, const uint8_t *words, const uint8_t *right, size_t count)
{
    uint8_t *sum = exactly(4 * count), *decoded = exactly(4 * count), *fused = exactly(4 * count);
    encoded separate, together = {exactly(a->room), 0, 0};
    CHECK(sn_reduce(a->operation, SN_FLOAT32, words, right, count, sum) == 0);
    separate = encode(a, sum, count);
    together.length = sn_combine_encode(a->codec, a->parameter, a->operation, words, right, count, a->first,
                                        together.body, a->room, &together.consumed);
    check_same(separate, together);
    sn_roundtrip(a->codec, a->parameter, sum, count, sum);
    CHECK(sn_combine_roundtrip(a->codec, a->parameter, a->operation, words, right, count, fused) == 0);
    CHECK(same(sum, fused, 4 * count));
    CHECK(sn_decode(a->codec, a->parameter, e.body, e.length, decoded, e.consumed) == 0);
    CHECK(sn_reduce(a->operation, SN_FLOAT32, decoded, right, e.consumed, decoded) == 0);
    CHECK(sn_decode_combine(a->codec, a->parameter, e.body, e.length, a->operation, right, fused, e.consumed) == 0);
    CHECK(same(decoded, fused, 4 * e.consumed));
    free(sum);
    free(decoded);
    free(fused);
    free(separate.body);
    free(together.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    asked a = {.codec = (int)(take8(&in) % (SN_LAST_CODEC + 1))};
    int lowest, highest;
    CHECK(sn_codec_describe(a.codec, &lowest, &highest) != NULL);
    a.parameter = lowest + (int)(take8(&in) % (uint32_t)(highest - lowest + 1));
    if (!sn_codec_valid(a.codec, a.parameter))
        a.parameter = highest;
    a.first = 1 + take8(&in) % (uint32_t)sn_codec_block_words(a.codec);
    a.room = take16(&in) % 8192;
    a.operation = (int)(take8(&in) % SN_ARITHMETIC);
    const uint32_t how = take8(&in);
    int simd = (int)(how % SN_SIMD_NUMBERS);
    size_t length;
    uint8_t *once = take_bytes(&in, in.left & ~(size_t)3, &length);
    const size_t count = how >> 7 && length ? FULL : length / 4;
    uint8_t *words = exactly(4 * count);
    for (size_t i = 0; i < 4 * count; i++)
        words[i] = once[i % length];
    free(once);
    uint8_t *right = exactly(4 * count); /* the same words, the other way round */
    for (size_t i = 0; i < count; i++)
        memcpy(right + 4 * i, words + 4 * (count - 1 - i), 4);

    CHECK(sn_simd_select(SN_SCALAR) == 0);
    encoded reference = encode(&a, words, count);
    while (sn_simd_select(simd)) /* this machine's next one below */
        simd--;
    encoded e = encode(&a, words, count);
    check_same(reference, e);
    free(e.body);
    check_decodes(&a, reference, words);
    check_combined(&a, reference, words, right, count);
    free(reference.body);
    free(right);
    free(words);
    return 0;
}
