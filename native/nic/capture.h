/* What a node records for its captures: on the host side the segments as TCP gave or gets them, on the wire side every
   frame. A super-segment has no header of its own and may be longer than an IPv4 packet: it gets the header that an
   ordinary NIC's driver would show, with valid lengths, sequence numbers and checksums, and is cut at multiples of 64 bytes
   if it is too long. Its MAC addresses are derived from the IP addresses, as those of softnic's nodes are. */
#ifndef SOFTNIC_CAPTURE_H
#define SOFTNIC_CAPTURE_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "nic/capture_ring.h"
#include "nic/frame_header.h"
#include "nic/packets.h"
#include "tcp/fast_path.h"
/* all */

/* Limit of the captures of a node at a time. */
enum { SN_MOST_CAPTURES = 8 };

typedef struct {
    uint32_t ip;            /* makes packet numbers unique among nodes */
    uint8_t mac_prefix[3];  /* of the MAC address that belongs to an IP address */
    int64_t epoch_ns;       /* since 1970: when the clock of the node was 0 */
    double interval_s;      /* after which queued blocks are sent */
    double flush_at;        /* when they are sent next; infinity: none is queued */
    uint32_t count;
    sn_capture_ring *rings[SN_MOST_CAPTURES]; /* the captures in progress */
} sn_capture;

/* Records a segment on the host side: the header of its first frame, without lengths and checksums, and its payload.
   `packet_id` is its number at this node, 0 for one that has arrived. Returns -1 for a header of an impossible length. */
int sn_capture_segment(sn_capture *capture, const uint8_t *header, uint32_t header_length, const uint8_t *payload,
                       uint64_t length, uint32_t direction, uint64_t packet_id, double now);

/* Sends queued blocks, if their time has come. */
void sn_capture_flush(sn_capture *capture, double now);

/* C only */

/* Whether something is recorded. */
static inline bool sn_is_captured(const sn_capture *capture)
{
    return capture && capture->count;
}

/* Records frames that leave, of the packet numbered `packet_id`, or that have arrived (`packet_id` 0). */
void sn_capture_frames(sn_capture *capture, uint32_t direction, uint64_t packet_id, const uint8_t *data,
                       const uint32_t *offsets, const uint32_t *lengths, uint32_t count, double now);

/* Records a frame that is not TCP on the host side. */
void sn_capture_host_frame(sn_capture *capture, uint32_t direction, const uint8_t *frame, uint32_t length, double now);

/* Records a segment that was sent, with these fields but the TTL and `length` bytes of payload. */
void sn_capture_outgoing(sn_capture *capture, const sn_segment_fields *fields, const uint8_t *payload, uint64_t length,
                         uint64_t packet_id, double now);

/* Records the first `consumed` bytes of a segment that a flow has sent. */
void sn_capture_sent(sn_capture *capture, const sn_flow *flow, const sn_output *out, uint64_t consumed,
                     uint64_t packet_id, double now);

/* Records a run of frames in `batch` as the segment that TCP gets: `length` bytes of payload, in pieces at offsets from
   `data`. */
void sn_capture_received(sn_capture *capture, const sn_run *run, const uint8_t *batch, const uint8_t *data,
                         const sn_payload_ref *pieces, uint64_t length, double now);
/* all */

#endif
