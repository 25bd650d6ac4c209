/* Encrypted datagrams of one peer, opened where they lie. Input: how often the cipher says that a tag is right (1 byte: never,
   always, or by the tag's first bit; its highest bit: counters begin with lanes), the counter that comes next (8), then datagrams: length (2 bytes, of which 9 bits
   count), bytes; bit 15 of the length gives them the header of a session.

   Each datagram is counted once, frames lie within their datagrams, none is let through twice, and what OpenSSL
   is asked to open is within the buffer. */
#include "cipher.h"
#include "fuzz.h"
#include "nic/secure_channel.h"

enum { MOST = 64, FIXED = 8 };

static const sn_hello_key KEYS[2] = {{.kind = SN_SECURE_HELLO}, {.kind = SN_IDENTITY_HELLO, .hint = 1}};

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

    sn_replay_window windows[SN_COUNTER_QUEUES] = {0};

    verdict = take8(&in);
    openers[0].by_queue = verdict & 0x80 ? windows : NULL;
    verdict = (verdict & 0x7f) % 3;
    openers[0].window.next = take32(&in);
    openers[0].window.next |= (uint64_t)take32(&in) << 32;
    const uint32_t count = take_datagrams(&in, openers, &datagrams, offsets, lengths);
    uint32_t frames = 0;
    for (uint32_t at = 0; at < count; at++) { /* past the hello that ended the part before */
        const uint32_t done = sn_decrypt(&CIPHER, KEYS, 2, both, 2, datagrams, offsets + at, lengths + at, count - at,
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
