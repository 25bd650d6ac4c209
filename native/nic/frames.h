/* Segmentation: one TCP super-segment becomes Ethernet frames, compressed if its tag selects a codec. */
#ifndef SOFTNIC_FRAMES_H
#define SOFTNIC_FRAMES_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Bytes kept free before every frame, for a link's own header (VXLAN's has 8). */
enum { SN_HEADROOM = 8 };

/* Size of the payload header (FORMAT.md). */
enum { SN_PAYLOAD_HEADER = 12 };

/* Version and flag bits of the payload header. */
enum { SN_PAYLOAD_VERSION = 1, SN_FLAG_RAW = 1, SN_FLAG_PADDED = 2 };

/* Minimum `max_payload` of a plan with a codec: header, one coding block of 64 bytes at its largest, tail. */
enum { SN_LEAST_MAX_PAYLOAD = 96 };

typedef struct {
    uint32_t header_length; /* bytes of Ethernet, IPv4 and TCP with options, at least 54 */
    uint32_t max_payload;          /* TCP payload bytes per frame, payload header included */
    int32_t codec;          /* codec of the payload header (0: all RAW); -1: no payload header */
    int32_t parameter;
    uint32_t packet_mode;   /* 1: cut to `max_payload`, then compress; 0: compress, then cut */
    uint32_t block_offset;         /* offset of the payload from its range's start, modulo 512; whole words unless the codec is 0 */
    uint32_t max_frames;
    uint32_t equal_sizes;   /* 1: without packet_mode, pad every offloaded frame but the last to `max_payload` (for UDP GSO) */
    uint32_t raw;           /* 1: encode nothing: every frame is RAW, its words as the codec decodes them */
} sn_cut_plan;

typedef struct {
    uint64_t consumed;        /* original bytes in the frames */
    uint64_t frame_bytes;   /* Ethernet bytes of all frames, without headroom */
    uint64_t payload_bytes; /* TCP payload bytes of all frames, with payload headers and padding */
    uint32_t frames;
    uint32_t raw_frames; /* frames with the RAW flag */
} sn_cut_result;

/* Cuts `payload` into frames at `out`, each behind SN_HEADROOM free bytes, and fills in lengths, IPv4 identification
   (counted up from the header's), sequence numbers (in original bytes) and all checksums. `header` is that of the first
   frame; its PSH and FIN go on the frame that ends the payload only, so a cut that stops early (max_frames, capacity)
   sends neither. An empty payload makes one frame. Of a tagged range, each frame but the last ends at a multiple of 64
   (or of the codec's blocks) from the range's start. The RAW body of a lossy codec holds the words as decode(encode(x)), so the result does not
   depend on how a stream was cut. Of a codec whose blocks are longer than 64 bytes, the rest of a block
   that was begun earlier, and a block that a frame cannot hold, are RAW and as they were. `offsets`/`lengths` take `max_frames` entries. Returns 0, or -1 for an illegal plan
   or a capacity too small for one frame. */
int sn_cut(const sn_cut_plan *plan, const uint8_t *header, const uint8_t *payload, size_t length,
           uint8_t *out, size_t capacity, uint32_t *offsets, uint32_t *lengths, sn_cut_result *result);

/* Returns the sum of `count` lengths. */
uint64_t sn_sum_lengths(const uint32_t *lengths, uint32_t count);

/* Returns the internet checksum (RFC 1071) of `length` bytes added to `initial` (a sum, not complemented), complemented
   and in host order. */
uint16_t sn_checksum(const uint8_t *data, size_t length, uint32_t initial);

#endif
