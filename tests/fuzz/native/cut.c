/* Segmentation and its way back. Input: a plan (codec, parameter, max_payload (2 bytes), block_offset, frames, flags, options), max_payload for
   frames (2), then the payload.

   Frames lie end to end and within their max_payload, pass the parser, say what they hold, and what they hold is the payload as
   far as it was taken: to the byte where it is plain, else its words as the codec leaves them. */
#include "codecs/codecs.h"
#include "nic/frames.h"
#include "fuzz.h"
#include "nic/headers.h"
#include "nic/packets.h"
#include "words.h"

enum { MOST_FRAMES = 80, TOS = 0x28, LONGEST_BLOCK = 4 * SN_LONGEST_BLOCK_WORDS };

static const uint8_t MAC[6] = {0x02, 0x53, 0x4e, 0x4d, 0x00, 0x02};

static uint32_t make_header(uint8_t *header, uint32_t options)
{
    const uint32_t length = ETHERNET_HEADER + IPV4_HEADER + TCP_HEADER + 4 * options;
    memset(header, 0, MAX_HEADER);
    memcpy(header, MAC, sizeof MAC);
    sn_store16be(header + ETHERNET_TYPE, ETHERTYPE_IPV4);
    uint8_t *ip = header + ETHERNET_HEADER, *tcp = ip + IPV4_HEADER;
    ip[0] = 0x45;
    ip[IPV4_TOS] = TOS;
    ip[IPV4_PROTOCOL] = PROTOCOL_TCP;
    sn_store32be(ip + IPV4_SOURCE, 0x0a4d0001);
    sn_store32be(ip + IPV4_DESTINATION, 0x0a4d0002);
    sn_store32be(tcp + TCP_SEQ, UINT32_C(0xffffff00));
    tcp[TCP_OFFSET] = (uint8_t)((TCP_HEADER / 4 + options) << 4);
    tcp[TCP_FLAGS] = TCP_ACK_FLAG | TCP_PSH | TCP_FIN;
    memset(tcp + TCP_HEADER, 1, 4 * options);
    return length;
}

static sn_cut_plan take_plan(input *in, uint32_t header_length)
{
    sn_cut_plan plan = {.header_length = header_length};
    plan.codec = (int32_t)(take8(in) % (SN_LAST_CODEC + 3)) - 1;
    plan.parameter = (int8_t)take8(in);
    plan.max_payload = take16(in);
    plan.block_offset = take8(in) * 4 % (LONGEST_BLOCK + 4) + (plan.codec == SN_RAW);
    plan.max_frames = take8(in) % (MOST_FRAMES + 1);
    const uint32_t flags = take8(in);
    plan.packet_mode = flags & 1;
    plan.equal_sizes = flags >> 1 & 1;
    plan.raw = flags >> 2 & 1;
    return plan;
}

/* Bytes between two places where the codec's ranges may be cut. */
static size_t block_of(const sn_cut_plan *plan) { return 4 * (size_t)sn_codec_block_words(plan->codec); }

/* Whether a frame may hold a part of a block, whose words are then as they were. */
static int has_parts(const sn_cut_plan *plan)
{
    return plan->codec > SN_RAW && block_of(plan) > plan->max_payload - SN_PAYLOAD_HEADER;
}

/* The payload as it has to arrive: blocks of a codec begin at multiples of their size, and what is left of one that was
   begun earlier is a block of its own, or is as it was if the codec's blocks are long. */
static uint8_t *expected_of(const sn_cut_plan *plan, const uint8_t *payload, size_t taken)
{
    uint8_t *expected = exactly(taken);
    if (taken)
        memcpy(expected, payload, taken);
    if (plan->codec <= SN_RAW)
        return expected;
    const size_t block = block_of(plan), offset = plan->block_offset % block;
    const size_t words = taken / 4, begun = offset ? (block - offset) / 4 : 0;
    const size_t first = begun < words ? begun : words;
    if (block == 4 * SN_CODING_BLOCK_WORDS)
        sn_roundtrip(plan->codec, plan->parameter, expected, first, expected);
    sn_roundtrip(plan->codec, plan->parameter, expected + 4 * first, words - first, expected + 4 * first);
    return expected;
}

static void check_arrives(const sn_cut_plan *plan, const uint8_t *out, size_t size, const uint32_t *offsets,
                          const uint32_t *lengths, const sn_cut_result *result, const uint8_t *expected)
{
    sn_payload_ref pieces[MOST_FRAMES];
    sn_run runs[MOST_FRAMES];
    const uint64_t offloads = plan->codec >= 0 ? UINT64_C(1) << (TOS >> 2) : 0;
    const uint32_t found = sn_parse(out, size, offsets, lengths, result->frames, MAC, offloads, pieces, runs);
    uint64_t payload_bytes = 0, original_bytes = 0;
    for (uint32_t i = 0; i < found; i++) {
        CHECK(runs[i].kind == SN_KIND_TCP && runs[i].seq == (uint32_t)(UINT32_C(0xffffff00) + original_bytes));
        payload_bytes += runs[i].payload_bytes;
        original_bytes += runs[i].original_bytes;
    }
    CHECK(payload_bytes == result->payload_bytes && original_bytes == result->consumed);
    uint8_t *got = exactly(result->consumed);
    uint64_t restored = result->consumed;
    uint32_t raw = 0;
    if (offloads && result->consumed)
        CHECK(sn_decode_payloads(out, size, pieces, result->frames, (1u << (SN_LAST_CODEC + 1)) - 1, got, result->consumed, &restored, &raw) ==
              result->frames);
    else
        CHECK(sn_gather(out, size, pieces, result->frames, got, result->consumed) == (int64_t)result->consumed);
    CHECK(restored == result->consumed && raw == result->raw_frames);
    CHECK(has_parts(plan) || same(got, expected, result->consumed));
    free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    uint8_t header[MAX_HEADER];
    const uint32_t header_length = make_header(header, take8(&in) % 11);
    const sn_cut_plan plan = take_plan(&in, header_length);
    const size_t capacity = take16(&in);
    CHECK(sn_simd_select((int)(take8(&in) % SN_SIMD_NUMBERS)) == 0 || sn_simd_select(SN_SCALAR) == 0);
    size_t length;
    uint8_t *payload = take_bytes(&in, in.left, &length), *out = exactly(capacity);
    uint32_t *offsets = (uint32_t *)exactly(plan.max_frames * sizeof *offsets);
    uint32_t *lengths = (uint32_t *)exactly(plan.max_frames * sizeof *lengths);
    sn_cut_result result;
    if (sn_cut(&plan, header, payload, length, out, capacity, offsets, lengths, &result) == 0) {
        CHECK(result.frames > 0 && result.frames <= plan.max_frames && result.consumed <= length);
        size_t at = 0;
        for (uint32_t i = 0; i < result.frames; i++) {
            CHECK(offsets[i] == at + SN_HEADROOM && lengths[i] <= header_length + plan.max_payload);
            at += SN_HEADROOM + lengths[i];
        }
        CHECK(at <= capacity && result.frame_bytes == at - (size_t)result.frames * SN_HEADROOM);
        uint8_t *expected = expected_of(&plan, payload, result.consumed);
        check_arrives(&plan, out, at, offsets, lengths, &result, expected);
        free(expected);
    }
    free(payload);
    free(out);
    free(offsets);
    free(lengths);
    return 0;
}
