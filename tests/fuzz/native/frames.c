/* Whatever arrives on a link, as a batch of frames. Input: what to do (1 byte: bit 0 makes lengths and checksums right, so
   that mutations get past them; bit 1 has the codec bitmap of one codec only), then frames: length (2 bytes, of which 11
   bits count), bytes.

   Runs cover the batch, frame by frame in order; what they say of payloads lies within the batch and adds up; restoring
   writes what was claimed, or less where a piece is malformed; a frame is judged the same alone and in company. */
#include "nic/checksum.h"
#include "nic/frames.h"
#include "fuzz.h"
#include "nic/headers.h"
#include "nic/packets.h"

enum { MOST_FRAMES = 64, TOS = 0x28 };

static const uint8_t MAC[6] = {0x02, 0x53, 0x4e, 0x4d, 0x00, 0x02};
static const uint64_t OFFLOADS = UINT64_C(1) << (TOS >> 2);

typedef struct {
    uint8_t *data;
    size_t size;
    uint32_t offsets[MOST_FRAMES];
    uint32_t lengths[MOST_FRAMES];
    uint32_t count;
} batch;

static void repair(uint8_t *frame, uint32_t length)
{
    uint8_t *ip = frame + ETHERNET_HEADER;
    if (length < ETHERNET_HEADER + IPV4_HEADER + TCP_HEADER)
        return;
    const uint32_t header = 4 * (ip[0] & 15u), total = length - ETHERNET_HEADER;
    if (header < IPV4_HEADER || header + TCP_HEADER > total)
        return;
    sn_store16be(ip + IPV4_LENGTH, (uint16_t)total);
    sn_store16(ip + IPV4_CHECKSUM, 0);
    sn_store16(ip + IPV4_CHECKSUM, (uint16_t)~sn_fold(sn_sum(ip, header)));
    uint8_t *tcp = ip + header;
    const uint64_t pseudo = sn_sum(ip + IPV4_SOURCE, 8) + sn_sum_field16(PROTOCOL_TCP) + sn_sum_field16(total - header);
    sn_store16(tcp + TCP_CHECKSUM, 0);
    sn_store16(tcp + TCP_CHECKSUM, (uint16_t)~sn_fold(pseudo + sn_sum(tcp, total - header)));
}

static void take_batch(input *in, int right, batch *b)
{
    uint8_t *frames[MOST_FRAMES];
    b->count = 0;
    b->size = 0;
    while (in->left && b->count < MOST_FRAMES) {
        size_t length;
        const size_t asked = take16(in) & 0x7ff;
        uint8_t *frame = take_bytes(in, asked, &length);
        if (right)
            repair(frame, (uint32_t)length);
        b->offsets[b->count] = (uint32_t)b->size;
        b->lengths[b->count] = (uint32_t)length;
        frames[b->count++] = frame;
        b->size += length;
    }
    b->data = exactly(b->size);
    for (uint32_t i = 0; i < b->count; i++) {
        if (b->lengths[i])
            memcpy(b->data + b->offsets[i], frames[i], b->lengths[i]);
        free(frames[i]);
    }
}

static uint32_t parse(const batch *b, uint32_t first, uint32_t count, sn_payload_ref *pieces, sn_run *runs)
{
    return sn_parse(b->data, b->size, b->offsets + first, b->lengths + first, count, MAC, OFFLOADS, pieces, runs);
}

static void check_run(const batch *b, const sn_payload_ref *pieces, const sn_run *run, uint32_t codecs)
{
    uint64_t lengths = 0, originals = 0;
    for (uint32_t i = 0; i < run->count; i++) {
        CHECK((uint64_t)pieces[i].offset + pieces[i].length <= b->size);
        lengths += pieces[i].length;
        originals += pieces[i].original;
    }
    CHECK(lengths == run->payload_bytes && originals == run->original_bytes);
    CHECK(run->count == 1 || originals <= SN_MAX_RUN);
    CHECK((uint64_t)run->options_offset + run->options_length <= b->size && run->options_length <= 40);

    uint8_t *out = exactly(lengths);
    CHECK(sn_gather(b->data, b->size, pieces, run->count, out, lengths) == (int64_t)lengths);
    CHECK(lengths == 0 || sn_gather(b->data, b->size, pieces, run->count, out, lengths - 1) == -1);
    free(out);
    if (run->tos >> 2 != TOS >> 2 || !lengths)
        return;
    uint64_t restored;
    uint32_t raw;
    out = exactly(originals);
    const uint32_t done = sn_decode_payloads(b->data, b->size, pieces, run->count, codecs, out, originals, &restored, &raw);
    CHECK(done <= run->count && raw <= done);
    uint64_t expected = 0;
    for (uint32_t i = 0; i < done; i++)
        expected += pieces[i].original;
    CHECK(restored == expected && (done == run->count) == (restored == originals));
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    batch b;
    const uint32_t how = take8(&in);
    take_batch(&in, how & 1, &b);
    sn_payload_ref *pieces = (sn_payload_ref *)exactly(b.count * sizeof *pieces);
    sn_run *runs = (sn_run *)exactly(b.count * sizeof *runs);
    const uint32_t found = parse(&b, 0, b.count, pieces, runs);
    uint32_t next = 0;
    for (uint32_t i = 0; i < found; i++) {
        const sn_run *run = runs + i;
        CHECK(run->first == next && run->count > 0);
        next += run->count;
        CHECK(run->kind == SN_KIND_TCP || run->count == 1);
        if (run->kind == SN_KIND_TCP)
            check_run(&b, pieces + run->first, run, how & 2 ? 4 : 0x1f);
        for (uint32_t frame = run->first; frame < next; frame++) {
            sn_payload_ref piece;
            sn_run alone;
            CHECK(parse(&b, frame, 1, &piece, &alone) == 1 && alone.kind == run->kind);
            CHECK(memcmp(&piece, pieces + frame, sizeof piece) == 0);
        }
    }
    CHECK(next == b.count);
    free(pieces);
    free(runs);
    free(b.data);
    return 0;
}
