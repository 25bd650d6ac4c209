/* Payloads of tagged segments, after the frame around them was found good. Input: bitmap of codecs (1 byte), missing room
   (1), then pieces: length (2 bytes, of which 11 bits count), whether the claim of the header is believed (1: bit 0; else
   the bits above are the claim), bytes.

   What is restored is what the pieces before the first malformed one claim, in every implementation bit for bit. */
#include "codecs/codecs.h"
#include "nic/frames.h"
#include "fuzz.h"
#include "nic/packets.h"
#include "words.h"

enum { MOST_PIECES = 16, MOST_ORIGINAL = 1 << 16 };

typedef struct {
    uint8_t *data;
    size_t size;
    sn_payload_ref pieces[MOST_PIECES];
    uint32_t count;
    size_t originals;
} payloads;

static payloads take_payloads(input *in)
{
    payloads p = {exactly(in->left), 0, {{0, 0, 0}}, 0, 0};
    while (in->left && p.count < MOST_PIECES) {
        const size_t asked = take16(in) & 0x7ff;
        const uint32_t claim = take8(in);
        size_t length;
        uint8_t *bytes = take_bytes(in, asked, &length);
        const int believed = claim & 1 && length >= 8 && sn_load32be(bytes + 4) <= MOST_ORIGINAL;
        const uint32_t original = believed ? sn_load32be(bytes + 4) : claim >> 1;
        if (length)
            memcpy(p.data + p.size, bytes, length);
        free(bytes);
        p.pieces[p.count++] = (sn_payload_ref){(uint32_t)p.size, (uint32_t)length, original};
        p.size += length;
        p.originals += original;
    }
    p.data = realloc(p.data, p.size ? p.size : 1); /* so that it ends where the last piece does */
    CHECK(p.data);
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    const uint32_t codecs = take8(&in), missing = take8(&in);
    const payloads p = take_payloads(&in);
    const size_t capacity = missing < p.originals ? p.originals - missing : 0;
    uint8_t *reference = NULL;
    uint64_t length = 0;
    for (int simd = SN_SCALAR; simd < SN_SIMD_NUMBERS; simd++) {
        if (sn_simd_select(simd))
            continue;
        uint8_t *out = exactly(capacity);
        uint64_t restored, expected = 0;
        uint32_t raw;
        const uint32_t done = sn_decode_payloads(p.data, p.size, p.pieces, p.count, codecs, out, capacity, &restored, &raw);
        for (uint32_t i = 0; i < done; i++)
            expected += p.pieces[i].original;
        CHECK(done <= p.count && raw <= done && restored == expected && restored <= capacity);
        if (!reference) {
            reference = out;
            length = restored;
            continue;
        }
        CHECK(restored == length && same(out, reference, length));
        free(out);
    }
    free(reference);
    free(p.data);
    return 0;
}
