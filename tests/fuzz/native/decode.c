/* The decoder of one codec (FUZZ_CODEC) on a body that anybody may have written. Input: parameter (1 byte), words that the
   body is said to stand for (2), the body.

   Every implementation must say the same of it, word for word; counting vectors and decoding by parts, too. What was
   decoded encodes again, and after one such round trip nothing changes any more (docs/FORMAT.md). */
#include "codecs/codecs.h"
#include "engines.h"
#include "fuzz.h"

enum { MOST_WORDS = 511 };

static int lowest, highest;

static int decode(int simd, int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    CHECK(sn_simd_select(simd) == 0);
    return sn_decode(FUZZ_CODEC, parameter, body, length, words, count);
}

static void check_tags(int parameter, const uint8_t *body, size_t length, size_t count, int accepted)
{
    uint64_t counts[4];
    const int counted = sn_tag_counts(FUZZ_CODEC, parameter, body, length, count, counts);
    CHECK((counted == 0) == (accepted && sn_codec_has_tags(FUZZ_CODEC)));
    CHECK(counted || counts[0] + counts[1] + counts[2] + counts[3] == count);
}

static void check_parts(int parameter, const uint8_t *body, size_t length, const uint8_t *words, size_t count)
{
    size_t used = 0;
    for (size_t done = 0; done < count; done += SN_PART_WORDS) {
        const size_t part = count - done < SN_PART_WORDS ? count - done : SN_PART_WORDS;
        uint8_t *out = exactly(4 * part);
        const ptrdiff_t more = sn_decode_part(FUZZ_CODEC, parameter, body + used, length - used, out, part);
        CHECK(more >= 0 && same(out, words + 4 * done, 4 * part));
        used += (size_t)more;
        free(out);
    }
    CHECK(used == length);
}

/* `words` become what they are after one link. */
static void cross(int parameter, uint8_t *words, size_t count)
{
    const size_t bound = sn_encoded_bound(FUZZ_CODEC, parameter, count);
    uint8_t *body = exactly(bound), *expected = exactly(4 * count);
    size_t consumed;
    const size_t block = (size_t)sn_codec_block_words(FUZZ_CODEC);
    const size_t length = sn_encode(FUZZ_CODEC, parameter, words, count, block, body, bound, &consumed);
    CHECK(consumed == count && length <= bound && length >= sn_encoded_least(FUZZ_CODEC, parameter, count));
    sn_roundtrip(FUZZ_CODEC, parameter, words, count, expected);
    CHECK(sn_decode(FUZZ_CODEC, parameter, body, length, words, count) == 0);
    CHECK(same(words, expected, 4 * count));
    free(body);
    free(expected);
}

static void check_accepted(int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    check_parts(parameter, body, length, words, count);
    cross(parameter, words, count);
    uint8_t *once = exactly(4 * count);
    if (count)
        memcpy(once, words, 4 * count);
    cross(parameter, words, count);
    CHECK(same(once, words, 4 * count));
    free(once);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    if (!highest && FUZZ_CODEC != SN_RAW)
        CHECK(sn_codec_describe(FUZZ_CODEC, &lowest, &highest) != NULL);
    int parameter = lowest + (int)(take8(&in) % (uint32_t)(highest - lowest + 1));
    if (!sn_codec_valid(FUZZ_CODEC, parameter))
        parameter = highest;
    const size_t count = take16(&in) & MOST_WORDS;
    size_t length;
    uint8_t *body = take_bytes(&in, in.left, &length), *words = exactly(4 * count), *others = exactly(4 * count);
    const int refused = decode(SN_SCALAR, parameter, body, length, words, count);
    for (int simd = SN_SCALAR + 1; simd < SN_SIMD_NUMBERS; simd++)
        if (sn_simd_available(simd)) {
            CHECK(decode(simd, parameter, body, length, others, count) == refused);
            CHECK(refused || same(words, others, 4 * count));
        }
    check_tags(parameter, body, length, count, !refused);
    if (!refused)
        check_accepted(parameter, body, length, words, count);
    free(body);
    free(words);
    free(others);
    return 0;
}
