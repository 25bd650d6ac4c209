/* Receive: frames become checked packets, runs of one flow become one segment. */
#ifndef SOFTNIC_PACKETS_H
#define SOFTNIC_PACKETS_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* What a frame turned out to be. Everything from SN_DROP_FRAME on is a reason to drop it. */
enum {
    SN_KIND_TCP = 0,
    SN_KIND_OTHER = 1, /* a well-formed Ethernet frame that is not TCP over IPv4: for Python to look at */
    SN_DROP_FRAME = 16,    /* too short for Ethernet, or not a frame at all */
    SN_DROP_IP = 17,       /* bad IPv4 header: version, lengths */
    SN_DROP_IP_CHECKSUM = 18,
    SN_DROP_FRAGMENT = 19,
    SN_DROP_TCP = 20,      /* bad TCP header: offset, lengths, options */
    SN_DROP_TCP_CHECKSUM = 21,
    SN_DROP_ADDRESS = 22   /* to another MAC address */
};

/* No run stands for more original bytes than this, unless one frame alone does. */
enum { SN_MAX_RUN = 1 << 20 };

/* One run: frames [first, first + count) of the batch, received back to back on one flow with the same ACK,
   window, tags and option values, and with adjoining sequence numbers. A dropped or OTHER frame is a run of one.
   Numbers are in host order. */
typedef struct {
    uint32_t first;
    uint32_t count;
    uint32_t src;
    uint32_t dst;
    uint32_t seq;
    uint32_t ack;
    uint32_t ts_value; /* RFC 7323, where has_timestamps */
    uint32_t ts_echo;
    uint32_t payload_bytes;  /* sum over the run, as on the wire */
    uint32_t original_bytes; /* sum over the run, after the payload headers, if the ToS selects an offload */
    uint32_t options_offset; /* TCP options of the first frame, within the batch's buffer */
    uint32_t sack_offset;    /* the first of its SACK blocks (RFC 2018), there too, where sack_blocks is not 0 */
    uint16_t options_length;
    uint16_t sport;
    uint16_t dport;
    uint16_t window;
    uint8_t kind;
    uint8_t flags; /* of all frames, ORed (only PSH and FIN can differ, and only on the last) */
    uint8_t tos;
    uint8_t has_timestamps;
    uint8_t sack_blocks; /* each of them the first and the last number, behind its end, big-endian */
    uint8_t unused[3];
} sn_run;

/* Where one frame's TCP payload lies in the batch's buffer, and the original bytes it stands for: what its
   payload header says if the ToS selects an offload and the header is plausible, else its own length. */
typedef struct {
    uint32_t offset;
    uint32_t length;
    uint32_t original;
} sn_payload_ref;

/* Parses `count` frames of `data` and checks them. Frames must go to `mac` (6 bytes) or to a group. `offloads` has
   bit (tos >> 2) set for every ToS that selects an offload. `pieces` takes one entry a frame, `runs` at most one a
   frame. Returns the number of runs. */
uint32_t sn_parse(const uint8_t *data, size_t size, const uint32_t *offsets, const uint32_t *lengths,
                  uint32_t count, const uint8_t *mac, uint64_t offloads, sn_payload_ref *pieces, sn_run *runs);

/* Copies the payloads of `count` pieces to `out`, one after the other, as they are. Returns the bytes written,
   or -1 if they do not fit. */
int64_t sn_gather(const uint8_t *data, size_t size, const sn_payload_ref *pieces, uint32_t count,
                  uint8_t *out, size_t capacity);

/* Restores the original bytes of `count` offloaded pieces to `out`, one after the other. `codecs` is the bitmap
   of codecs that may occur; raw always may. Stops at the first malformed piece, or where `capacity` ends. `*restored`
   gets the bytes written, `*raw` the RAW pieces among them. Returns the pieces restored (`count` if all). */
uint32_t sn_decode_payloads(const uint8_t *data, size_t size, const sn_payload_ref *pieces, uint32_t count, uint32_t codecs,
                    uint8_t *out, size_t capacity, uint64_t *restored, uint32_t *raw);

#endif
