/* The payloads of parsed frames: copied, or decoded. */
#include "nic/packets.h"

#include <string.h>

#include "codecs/codecs.h"
#include "nic/checksum.h"
#include "nic/frames.h"
#include "nic/headers.h"

static int within(const sn_payload_ref *piece,
                  size_t size) { return piece->offset <= size && piece->length <= size - piece->offset; }

int64_t sn_gather(const uint8_t *data, size_t size, const sn_payload_ref *pieces, uint32_t count,
                  uint8_t *out, size_t capacity)
{
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!within(pieces + i, size) || pieces[i].length > capacity - used) return -1;
        memcpy(out + used, data + pieces[i].offset, pieces[i].length);
        used += pieces[i].length;
    }
    return (int64_t)used;
}

static int codec_is_legal(int codec, int parameter, uint32_t codecs)
{
    if (codec == SN_RAW) return parameter == 0;
    return codec < 32 && codecs >> codec & 1 && sn_codec_valid(codec, parameter);
}

/* Decodes one payload of `length` bytes to the `original` bytes at `out`. Returns 0, or -1 if it is malformed. */
static int restore_piece(const uint8_t *payload, size_t length, size_t original, uint32_t codecs, uint8_t *out,
                         uint32_t *raw)
{
    if (length < SN_PAYLOAD_HEADER || payload[0] >> 4 != SN_PAYLOAD_VERSION) return -1;
    int flags = payload[0] & 15, codec = payload[1], parameter = (int8_t)payload[2];
    size_t tail = payload[3], encoded = sn_load32be(payload + 8), room = length - SN_PAYLOAD_HEADER;
    if (flags & ~(SN_FLAG_RAW | SN_FLAG_PADDED) || sn_load32be(payload + 4) != original) return -1;
    if (original == 0 || tail != (original & 3) || encoded < tail || !codec_is_legal(codec, parameter,
                                                                                     codecs)) return -1;
    if (codec == SN_RAW && !(flags & SN_FLAG_RAW)) return -1;
    if (flags & SN_FLAG_PADDED ? encoded >= room : encoded != room) return -1;
    payload += SN_PAYLOAD_HEADER;
    if (flags & SN_FLAG_RAW) {
        if (encoded != original) return -1;
        memcpy(out, payload, original);
        *raw += 1;
        return 0;
    }
    memcpy(out + original - tail, payload + encoded - tail, tail);
    return sn_decode(codec, parameter, payload, encoded - tail, out, original / 4);
}

uint32_t sn_decode_payloads(const uint8_t *data, size_t size, const sn_payload_ref *pieces, uint32_t count,
                            uint32_t codecs,
                    uint8_t *out, size_t capacity, uint64_t *restored, uint32_t *raw)
{
    uint32_t done = 0;
    *restored = 0;
    *raw = 0;
    for (; done < count; done++) {
        const sn_payload_ref *piece = pieces + done;
        if (!within(piece, size) || piece->original > capacity - *restored) break;
        if (restore_piece(data + piece->offset, piece->length, piece->original, codecs, out + *restored, raw)) break;
        *restored += piece->original;
    }
    return done;
}
