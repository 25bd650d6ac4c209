/* Segmentation. Each frame is made in one pass: header copied from the template, body copied (or encoded) and summed
   while in the cache, then the fields that differ between frames. */
#include "nic/frames.h"
#include "nic/checksum.h"
#include "codecs/codecs.h"
#include "nic/frame_header.h"
#include "nic/headers.h"

enum { CODING_BLOCK = 4 * SN_CODING_BLOCK_WORDS, LONGEST_BLOCK = 4 * SN_LONGEST_BLOCK_WORDS };

/* The payload of one frame. */
typedef struct {
    size_t original; /* bytes of the stream that it carries */
    size_t length;
    uint64_t sum;
    int raw;
} body;

static int header_is_legal(const uint8_t *header, size_t length)
{
    return length >= ETHERNET_AND_IPV4 + TCP_HEADER && length <= MAX_HEADER && header[ETHERNET_HEADER] == 0x45 &&
           ETHERNET_AND_IPV4 + 4 * (size_t)(header[ETHERNET_AND_IPV4 + TCP_OFFSET] >> 4) == length;
}

static int plan_is_legal(const sn_cut_plan *plan, const uint8_t *header)
{
    if (!header_is_legal(header, plan->header_length) || plan->max_frames == 0 || plan->max_payload == 0) return 0;
    if (plan->max_payload > IPV4_MAX - (plan->header_length - ETHERNET_HEADER)) return 0;
    if (plan->codec < 0) return plan->codec == -1;
    if (plan->max_payload < SN_LEAST_MAX_PAYLOAD || plan->block_offset >= LONGEST_BLOCK) return 0;
    if (plan->codec == SN_RAW) return plan->parameter == 0;
    return plan->block_offset % 4 == 0 && sn_codec_valid(plan->codec, plan->parameter) &&
           sn_encoded_bound(plan->codec, plan->parameter,
                            SN_CODING_BLOCK_WORDS) + SN_PAYLOAD_HEADER + 3 <= SN_LEAST_MAX_PAYLOAD;
}

/* Bytes of the codec's blocks, or between two cuts. */
static size_t block_of(const sn_cut_plan *plan) { return 4 * (size_t)sn_codec_block_words(plan->codec); }

/* The longest run of bytes from `block_offset` on, at most `limit`, that ends at a cut between blocks. */
static size_t cut(size_t limit, size_t block_offset, size_t block)
{
    const size_t behind = (block_offset + limit) % block;
    return limit > behind ? limit - behind : 0;
}

static void write_payload_header(uint8_t *out, int flags, const sn_cut_plan *plan, size_t original, size_t encoded)
{
    out[0] = (uint8_t)(SN_PAYLOAD_VERSION << 4 | flags);
    out[1] = (uint8_t)plan->codec;
    out[2] = (uint8_t)plan->parameter;
    out[3] = original & 3;
    sn_store32be(out + 4, (uint32_t)original);
    sn_store32be(out + 8, (uint32_t)encoded);
}

/* Encodes the words that fit into `limit` bytes. Returns the encoded bytes, tail included; 0: RAW is smaller. */
static size_t encode_part(const sn_cut_plan *plan, size_t block_offset, const uint8_t *data, size_t left, uint8_t *out,
                          size_t limit, size_t *original)
{
    size_t words = left / 4, tail = left & 3, consumed = 0, first = (block_of(plan) - block_offset) / 4;
    size_t length = sn_encode(plan->codec, plan->parameter, data, words, first, out, limit, &consumed);
    if (consumed == words && length + tail > limit)
        length = sn_encode(plan->codec, plan->parameter, data, words, first, out, limit - tail, &consumed);
    *original = 4 * consumed;
    if (consumed == words) {
        memcpy(out + length, data + 4 * words, tail);
        length += tail;
        *original += tail;
    }
    return length < *original ? length : 0;
}

/* Encodes exactly `count` bytes. Returns the encoded bytes, tail included; 0: RAW is smaller. */
static size_t encode_whole(const sn_cut_plan *plan, size_t block_offset, const uint8_t *data, size_t count,
                           uint8_t *out)
{
    size_t words = count / 4, tail = count & 3, consumed = 0, first = (block_of(plan) - block_offset) / 4;
    if (words == 0) return 0;
    size_t length = sn_encode(plan->codec, plan->parameter, data, words, first, out, 4 * words - 1, &consumed);
    if (consumed != words) return 0;
    memcpy(out + length, data + 4 * words, tail);
    return length + tail;
}

static void copy_raw(const sn_cut_plan *plan, const uint8_t *data, size_t count, uint8_t *out)
{
    size_t words = plan->codec == SN_RAW ? 0 : count / 4;
    if (words) sn_roundtrip(plan->codec, plan->parameter, data, words, out);
    memcpy(out + 4 * words, data + 4 * words, count - 4 * words);
}

/* Copies a part of a block as it is. */
static size_t copy_part(const uint8_t *data, size_t most, size_t limit, size_t block_offset, uint8_t *out)
{
    const size_t count = most <= limit ? most : cut(limit, block_offset, CODING_BLOCK);
    memcpy(out, data, count);
    return count;
}

/* Makes one payload with its header, of at most `max_payload` bytes. `more`: another frame can follow. */
static body make_offloaded(const sn_cut_plan *plan, size_t block_offset, const uint8_t *data, size_t left,
                           uint8_t *out, int more)
{
    size_t limit = plan->max_payload - SN_PAYLOAD_HEADER, original = 0, encoded = 0, most = left;
    const size_t block = block_of(plan);
    block_offset %= block;
    if (block_offset && left > block - block_offset && sn_codec_has_blocks(plan->codec))
        most = block - block_offset; /* blocks begin at the same places, however often a range is cut */
    size_t whole = most <= limit ? most : cut(limit, block_offset, block);
    int flags = 0;
    if (block > CODING_BLOCK && block_offset) {
        whole = 0;
    } else if (plan->codec != SN_RAW && !plan->raw) {
        if (most <= limit || plan->packet_mode) {
            original = whole;
            encoded = encode_whole(plan, block_offset, data, whole, out + SN_PAYLOAD_HEADER);
        } else {
            encoded = encode_part(plan, block_offset, data, most, out + SN_PAYLOAD_HEADER, limit, &original);
        }
    }
    if (encoded == 0) {
        flags = SN_FLAG_RAW;
        original = encoded = whole;
        if (whole)
            copy_raw(plan, data, whole, out + SN_PAYLOAD_HEADER);
        else
            original = encoded = copy_part(data, most, limit, block_offset, out + SN_PAYLOAD_HEADER);
    }
    size_t length = SN_PAYLOAD_HEADER + encoded;
    if (plan->equal_sizes && !plan->packet_mode && more && original < left && length < plan->max_payload) {
        flags |= SN_FLAG_PADDED;
        memset(out + length, 0, plan->max_payload - length);
        length = plan->max_payload;
    }
    write_payload_header(out, flags, plan, original, encoded);
    return (body){original, length, sn_sum(out, length), flags & SN_FLAG_RAW};
}

static body make_plain(const sn_cut_plan *plan, const uint8_t *data, size_t left, uint8_t *out)
{
    size_t length = left < plan->max_payload ? left : plan->max_payload;
    return (body){length, length, sn_copy_sum(out, data, length), 0};
}

int sn_cut(const sn_cut_plan *plan, const uint8_t *header, const uint8_t *payload, size_t length,
           uint8_t *out, size_t capacity, uint32_t *offsets, uint32_t *lengths, sn_cut_result *result)
{
    sn_frame_header t;
    memset(result, 0, sizeof *result);
    if (!plan_is_legal(plan, header) || capacity > UINT32_MAX) return -1;
    sn_frame_header_begin(&t, header, plan->header_length);
    int offloaded = plan->codec >= 0 && length > 0;
    size_t used = 0, taken = 0, overhead = SN_HEADROOM + t.length;
    uint32_t index = 0;
    do {
        size_t left = length - taken, need = left + (offloaded ? SN_PAYLOAD_HEADER : 0);
        if (need > plan->max_payload) need = plan->max_payload;
        if (capacity - used < overhead + need) break;
        uint8_t *frame = out + used + SN_HEADROOM;
        int more = index + 1 < plan->max_frames && capacity - used >= 2 * (overhead + plan->max_payload);
        body b = offloaded ? make_offloaded(plan, plan->block_offset + taken, payload + taken, left, frame + t.length, more)
                           : make_plain(plan, payload + taken, left, frame + t.length);
        uint8_t flags = b.original == left ? t.flags : t.flags & (uint8_t)~(TCP_PSH | TCP_FIN);
        sn_frame_header_write(frame, &t, b.length, b.sum, taken, index, flags);
        offsets[index] = (uint32_t)(used + SN_HEADROOM);
        lengths[index++] = (uint32_t)(t.length + b.length);
        used += overhead + b.length;
        taken += b.original;
        result->payload_bytes += b.length;
        result->raw_frames += b.raw != 0;
    } while (taken < length && index < plan->max_frames);
    result->consumed = taken;
    result->frames = index;
    result->frame_bytes = used - (size_t)index * SN_HEADROOM;
    return index ? 0 : -1;
}

uint64_t sn_sum_lengths(const uint32_t *lengths, uint32_t count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += lengths[i];
    return total;
}

uint16_t sn_checksum(const uint8_t *data, size_t length, uint32_t initial)
{
    uint32_t carried = (initial & 0xffff) + (initial >> 16);
    carried = (carried & 0xffff) + (carried >> 16);
    return (uint16_t)~__builtin_bswap16(sn_fold(sn_sum(data, length) + sn_sum_field16(carried)));
}
