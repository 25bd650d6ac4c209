/* Encrypted datagrams of one peer, opened where they lie. Input: how often the cipher says that a tag is right (1 byte: never,
   always, or by the tag's first bit), the counter that comes next (8), then datagrams: length (2 bytes, of which 9 bits
   count), bytes; bit 15 of the length gives them the header of a session.

   The cipher is one of ours that touches every byte it is given, so the fuzzer is not held up by a tag that it cannot
   guess. Each datagram is counted once, frames lie within their datagrams, none is let through twice, and what OpenSSL
   is asked to open is within the buffer. */
#include "fuzz.h"
#include "aead.h"
#include "words.h"

enum { MOST = 64, FIXED = 8 };

static uint32_t verdict;
static uint8_t tag;

static int init(void *context, const void *cipher, void *engine, const uint8_t *key, const uint8_t *nonce, int encrypt)
{
    (void)context, (void)cipher, (void)engine, (void)key, (void)encrypt;
    return nonce[0] == 0;
}

static int update(void *context, uint8_t *out, int *out_length, const uint8_t *in, int in_length)
{
    (void)context;
    for (int i = 0; out && i < in_length; i++)
        out[i] = in[i] ^ 0x55;
    *out_length = in_length;
    return in_length > 0;
}

static int final(void *context, uint8_t *out, int *out_length)
{
    (void)context, (void)out;
    *out_length = 0;
    return verdict == 0 ? 0 : verdict == 1 ? 1 : tag & 1;
}

static int control(void *context, int type, int argument, void *pointer)
{
    uint8_t whole[SN_SECURE_TAG];
    (void)context, (void)type;
    CHECK(argument == SN_SECURE_TAG);
    memcpy(whole, pointer, sizeof whole);
    tag = whole[0];
    return 1;
}

static uint8_t *hmac(const void *hash, const void *key, int key_length, const uint8_t *data, size_t length, uint8_t *out,
                     unsigned *out_length)
{
    (void)hash, (void)key, (void)key_length;
    memset(out, 0, 32);
    for (size_t i = 0; i < length; i++)
        out[0] ^= data[i];
    *out_length = 32;
    return out;
}

static const uint8_t KEY[32];
static const sn_cipher CIPHER = {init, update, final, control, hmac, NULL};

/* No datagram of a session and counter is let through twice. */
static void check_new(const uint8_t *data, const uint32_t *offsets, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < i; j++)
            CHECK(memcmp(data + offsets[i] - SN_SECURE_HEADER, data + offsets[j] - SN_SECURE_HEADER, SN_SECURE_HEADER) != 0);
}

/* Frames lie within their datagrams, in order. */
static void check_within(const uint32_t *offsets, const uint32_t *lengths, uint32_t count, const uint32_t *found_offsets,
                         const uint32_t *found_lengths, uint32_t frames)
{
    uint32_t i = 0;
    for (uint32_t frame = 0; frame < frames; frame++) {
        while (i < count && (!lengths[i] || offsets[i] + SN_SECURE_HEADER != found_offsets[frame]))
            i++; /* an empty one lies where the next one does */
        CHECK(i < count && found_lengths[frame] + SN_SECURE_OVERHEAD == lengths[i]);
    }
}

static uint32_t take_datagrams(input *in, const sn_decryptor *openers, uint8_t **data, uint32_t *offsets, uint32_t *lengths)
{
    uint32_t count = 0;
    size_t size = 0;
    *data = exactly(in->left);
    while (in->left && count < MOST) {
        const uint32_t how = take16(in);
        size_t length;
        uint8_t *bytes = take_bytes(in, how & 0x1ff, &length);
        if (how >> 15 && length >= FIXED)
            memcpy(bytes, openers[how >> 14 & 1].header, FIXED);
        memcpy(*data + size, bytes, length);
        free(bytes);
        offsets[count] = (uint32_t)size;
        lengths[count++] = (uint32_t)length;
        size += length;
    }
    *data = realloc(*data, size ? size : 1); /* so that it ends where the last datagram does */
    CHECK(*data);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    sn_decryptor openers[2] = {{.header = {SN_SECURE_FRAME, 0, 0, 1, 0, 0, 0, 1}},
                            {.header = {SN_SECURE_FRAME, 0, 0, 1, 0, 0, 0, 2}}};
    sn_decryptor *both[2] = {openers, openers + 1};
    uint32_t offsets[MOST], lengths[MOST], found_offsets[MOST], found_lengths[MOST];
    uint8_t *datagrams;
    sn_decrypted found;

    verdict = take8(&in) % 3;
    openers[0].next = take32(&in);
    openers[0].next |= (uint64_t)take32(&in) << 32;
    const uint32_t count = take_datagrams(&in, openers, &datagrams, offsets, lengths);
    uint32_t frames = 0;
    for (uint32_t at = 0; at < count; at++) { /* past the hello that ended the part before */
        const uint32_t done = sn_decrypt(&CIPHER, KEY, both, 2, datagrams, offsets + at, lengths + at, count - at,
                                      found_offsets + frames, found_lengths + frames, &found);
        CHECK(done <= count - at);
        CHECK(found.frames + found.empty + found.wrong_key + found.plaintext + found.malformed + found.unknown
                  + found.replayed + found.forged == done);
        CHECK(found.by[0] + found.by[1] == found.frames + found.empty);
        check_within(offsets + at, lengths + at, done, found_offsets + frames, found_lengths + frames, found.frames);
        frames += found.frames;
        at += done;
    }
    check_new(datagrams, found_offsets, frames);
    free(datagrams);
    return 0;
}
