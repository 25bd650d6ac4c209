/* The table of codecs and the calls that go through it. A new codec is a file of its own and a line here. */
#include "codecs.h"

#include "kernels.h"
#include "words.h"

static const sn_codec CODECS[] = {
    [SN_RAW] = {"raw", 0, 0, sn_raw_size, sn_raw_size, sn_raw_encode, sn_raw_decode, sn_raw_roundtrip, sn_raw_tags},
    [SN_INCEPTIONN] = {"inceptionn", 1, 23, sn_inceptionn_bound, sn_inceptionn_least, sn_inceptionn_encode,
                       sn_inceptionn_decode, sn_inceptionn_roundtrip, sn_inceptionn_tags},
    [SN_BOUNDED] = {"bounded", 1, 23, sn_bounded_bound, sn_bounded_least, sn_bounded_encode, sn_bounded_decode,
                    sn_bounded_roundtrip, sn_bounded_tags},
};

static const int COUNT = sizeof CODECS / sizeof CODECS[0];

/* The codec, or NULL where there is none or it does not take the parameter. */
static const sn_codec *find(int codec, int parameter)
{
    if (codec < 0 || codec >= COUNT || !CODECS[codec].name)
        return NULL;
    const sn_codec *const found = &CODECS[codec];
    return parameter >= found->lowest && parameter <= found->highest ? found : NULL;
}

const char *sn_codec_describe(int codec, int *lowest, int *highest)
{
    if (codec < 0 || codec >= COUNT || !CODECS[codec].name)
        return NULL;
    *lowest = CODECS[codec].lowest;
    *highest = CODECS[codec].highest;
    return CODECS[codec].name;
}

int sn_codec_valid(int codec, int parameter)
{
    return find(codec, parameter) != NULL;
}

size_t sn_encoded_bound(int codec, int parameter, size_t count)
{
    const sn_codec *const found = find(codec, parameter);
    return found ? found->bound(count) : 0;
}

size_t sn_encoded_least(int codec, int parameter, size_t count)
{
    const sn_codec *const found = find(codec, parameter);
    return found ? found->least(count) : 0;
}

size_t sn_encode(int codec, int parameter, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                 size_t capacity, size_t *consumed)
{
    const sn_codec *const found = find(codec, parameter);
    *consumed = 0;
    return found ? found->encode(parameter, words, count, first, out, capacity, consumed) : 0;
}

int sn_decode(int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const sn_codec *const found = find(codec, parameter);
    return found && length >= found->least(count) ? found->decode(parameter, body, length, words, count) : -1;
}

void sn_roundtrip(int codec, int parameter, const uint8_t *words, size_t count, uint8_t *out)
{
    const sn_codec *const found = find(codec, parameter);
    if (found)
        found->roundtrip(parameter, words, count, out);
}

int sn_tag_counts(int codec, int parameter, const uint8_t *body, size_t length, size_t count, uint64_t *counts)
{
    const sn_codec *const found = find(codec, parameter);
    memset(counts, 0, 4 * sizeof *counts);
    return found && found->tags && length >= found->least(count) ? found->tags(body, length, count, counts) : -1;
}
