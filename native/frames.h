/* Segmentation: one TCP super-segment becomes Ethernet frames, compressed on the way where its tag asks. */
#ifndef SOFTNIC_FRAMES_H
#define SOFTNIC_FRAMES_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Bytes kept free before every frame: a link writes its own header there (VXLAN's has 8). */
enum { SN_HEADROOM = 8 };

/* Size of the payload header of FORMAT.md. */
enum { SN_PAYLOAD_HEADER = 12 };

/* Version and flag bits of the payload header. */
enum { SN_PAYLOAD_VERSION = 1, SN_FLAG_RAW = 1, SN_FLAG_PADDED = 2 };

/* The least `max_payload` of a plan whose codec is not -1: header, one coding block of 64 bytes encoded at its worst, tail. */
enum { SN_LEAST_MAX_PAYLOAD = 96 };

typedef struct {
    uint32_t header_length; /* bytes of Ethernet + IPv4 + TCP with options, at least 54 */
    uint32_t max_payload;          /* TCP payload bytes that a frame may carry, payload header included */
    int32_t codec;          /* -1: no payload header; else the codec of the payload header (0: all RAW) */
    int32_t parameter;
    uint32_t packet_mode;   /* 1: cut to `max_payload` first and compress after; 0: fill */
    uint32_t block_offset;         /* offset of the first payload byte from its range's start, modulo 64; whole words unless the codec is 0 */
    uint32_t max_frames;
    uint32_t equal_sizes;   /* 1: fill mode pads every offloaded frame but the last to `max_payload` (for UDP GSO) */
    uint32_t raw;           /* 1: nothing is encoded: every frame is RAW, its words as the codec decodes them */
} sn_cut_plan;

typedef struct {
    uint64_t consumed;        /* original bytes that went into frames */
    uint64_t frame_bytes;   /* Ethernet bytes of all frames, headroom excluded */
    uint64_t payload_bytes; /* TCP payload bytes of all frames, payload headers and padding included */
    uint32_t frames;
    uint32_t raw_frames; /* of them, those with the RAW flag */
} sn_cut_result;

/* Cuts `payload` into frames at `out`, each with SN_HEADROOM free bytes before it, and fills in lengths, IPv4
   identification (counted up from the header's), sequence numbers (counting original bytes) and all checksums.
   `header` is the first frame's header; PSH and FIN, where set in it, go on the frame that ends the payload
   only, so a cut that stops early (max_frames, capacity) sends neither. With an empty payload one frame is made.
   A payload that is cut by a tagged range's rules ends each frame but the last at a multiple of 64 from the
   range's start. The RAW body of a lossy codec holds the words as decode(encode(x)) gives them, so that it does
   not matter how a stream was cut.
   `offsets`/`lengths` take one entry a frame, `max_frames` long. Frames lie end to end. Returns 0, or -1 for a plan
   that is not legal or a capacity that cannot hold one frame. */
int sn_cut(const sn_cut_plan *plan, const uint8_t *header, const uint8_t *payload, size_t length,
           uint8_t *out, size_t capacity, uint32_t *offsets, uint32_t *lengths, sn_cut_result *result);

/* The sum of `count` lengths. */
uint64_t sn_sum_lengths(const uint32_t *lengths, uint32_t count);

/* When each of `count` frames has passed a bottleneck that takes `byte_s` seconds for a byte and begins with the first
   at `start`, and `delay_s` later has arrived: to `due`. Returns when the last one has passed. */
double sn_serialize_times(const uint32_t *lengths, uint32_t count, double byte_s, double start, double delay_s, double *due);

/* The internet checksum (RFC 1071) of `length` bytes, added to `initial` (a sum, not complemented); complemented
   and in host order. */
uint16_t sn_checksum(const uint8_t *data, size_t length, uint32_t initial);

#endif
