/* Receive: frames become checked packets, and runs of one flow become one segment. */
#ifndef SOFTNIC_PACKETS_H
#define SOFTNIC_PACKETS_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Kinds of frames. Everything from SN_DROP_FRAME on is a reason to drop. */
enum {
    SN_KIND_TCP = 0,
    SN_KIND_OTHER = 1, /* a well-formed Ethernet frame other than TCP over IPv4, for Python */
    SN_KIND_STEERED = 2,   /* of another queue, which has it now */
    SN_DROP_FRAME = 16,    /* too short for Ethernet, or out of the buffer */
    SN_DROP_IP = 17,       /* bad IPv4 header: version, lengths */
    SN_DROP_IP_CHECKSUM = 18,
    SN_DROP_FRAGMENT = 19,
    SN_DROP_TCP = 20,      /* bad TCP header: offset, lengths */
    SN_DROP_TCP_CHECKSUM = 21,
    SN_DROP_ADDRESS = 22   /* to another MAC address */
};

/* Limit of a run's original bytes, unless one frame alone has more. */
enum { SN_MAX_RUN = 1 << 20 };

/* One run: frames [first, first + count) of the batch, received back to back on one flow with the same ACK, window,
   tags and option values, and with adjoining sequence numbers. A dropped or OTHER frame is a run of one. Numbers are in
   host order. */
typedef struct {
    uint32_t first;
    uint32_t count;
    uint32_t src;
    uint32_t dst;
    uint32_t seq;
    uint32_t ack;
    uint32_t ts_value; /* RFC 7323, if has_timestamps */
    uint32_t ts_echo;
    uint32_t payload_bytes;  /* sum over the run, as on the wire */
    uint32_t original_bytes; /* sum over the run according to the payload headers, if the ToS selects an offload */
    uint32_t options_offset; /* TCP options of the first frame, within the batch's buffer */
    uint32_t sack_offset;    /* the first of its SACK blocks (RFC 2018) in the buffer, if sack_blocks is not 0 */
    uint16_t options_length;
    uint16_t sport;
    uint16_t dport;
    uint16_t window;
    uint8_t kind;
    uint8_t flags; /* of all frames, ORed (only PSH and FIN can differ, and only on the last) */
    uint8_t tos;
    uint8_t has_timestamps;
    uint8_t sack_blocks; /* each one is the first sequence number and the one behind the last, big-endian */
    uint8_t unused[3];
} sn_run;

/* A frame's TCP payload in the batch's buffer, and its original length: from its payload header if the ToS selects an
   offload and the header is plausible, else its own length. */
typedef struct {
    uint32_t offset;
    uint32_t length;
    uint32_t original;
} sn_payload_ref;

/* Parses and checks `count` frames of `data`. Frames must go to `mac` (6 bytes) or to a group. `offloads` has bit (tos
   >> 2) set for every ToS that selects an offload. `pieces` takes one entry per frame, `runs` at most as many. Returns
   the number of runs. */
uint32_t sn_parse(const uint8_t *data, size_t size, const uint32_t *offsets, const uint32_t *lengths,
                  uint32_t count, const uint8_t *mac, uint64_t offloads, sn_payload_ref *pieces, sn_run *runs);

/* Copies `count` payloads unchanged and contiguously to `out`. Returns the bytes written, or -1 if they do not fit. */
int64_t sn_gather(const uint8_t *data, size_t size, const sn_payload_ref *pieces, uint32_t count,
                  uint8_t *out, size_t capacity);

/* Decodes `count` offloaded payloads contiguously to `out`. `codecs` is the bitmap of codecs that may occur; raw always
   may. Stops at the first malformed payload, or at `capacity`. `*restored` receives the bytes written, `*raw` the
   number of RAW payloads. Returns the payloads decoded (`count` if all). */
uint32_t sn_decode_payloads(const uint8_t *data, size_t size, const sn_payload_ref *pieces, uint32_t count,
                            uint32_t codecs,
                    uint8_t *out, size_t capacity, uint64_t *restored, uint32_t *raw);

#endif
