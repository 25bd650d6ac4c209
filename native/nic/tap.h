/* Exchanges packets with a kernel through a TAP device: super-segments both ways, as between driver and NIC. */
#ifndef SOFTNIC_TAP_H
#define SOFTNIC_TAP_H
/* C only */
#include <stddef.h>
#include <stdint.h>

#include "nic/packets.h"
/* all */

/* Bytes of virtio-net's header (virtio 1.2, section 5.1.6) before each packet, without num_buffers. */
enum { SN_TAP_HEADER = 10 };

/* Bytes needed by a read: the longest packet with its header. */
enum { SN_TAP_PACKET = 10 + 14 + 65535 };

/* Bytes for the headers of one packet: virtio's, Ethernet, IPv4 without options, TCP. */
enum { SN_TAP_SLOT = 10 + 94 };

/* What the kernel has sent: a packet, or a run of consecutive ones of one flow: super-segments of which each continues
   the one before, or bare ACKs of which only the last matters. `kind` is SN_KIND_TCP for what sn_cut can cut (IPv4
   without options, no fragment), SN_KIND_OTHER for any other frame, its checksum complete, and SN_DROP_FRAME for what
   cannot be sent. Numbers are in host order; those from `src` on are for TCP only. */
typedef struct {
    uint32_t header;        /* offset of a TCP segment's Ethernet header in `headers` */
    uint32_t offset;        /* of its payload in `buffer`; of the whole frame, if not TCP */
    uint32_t length;        /* bytes there */
    uint32_t packets;       /* packets that crossed the device */
    uint32_t src;
    uint32_t dst;
    uint32_t seq;
    uint32_t ack;
    uint16_t sport;
    uint16_t dport;
    uint16_t header_length; /* Ethernet, IPv4 and TCP with options; 0 if not TCP */
    uint16_t segment;       /* TCP payload bytes per frame that the kernel asks for; 0: it is one frame */
    uint16_t window;
    uint8_t kind;
    uint8_t flags;          /* of all packets, ORed; only PSH and FIN can differ */
    uint8_t tos;
    uint8_t unused[3];
} sn_tap_packet;

/* Reads packets while `buffer` has SN_TAP_PACKET bytes free and there are an entry of `packets` and a slot (SN_TAP_SLOT
   bytes) of `headers`, at most `most`. The payloads of a run are contiguous. Never blocks. `*more` is 0 if nothing more
   waits. Returns the number of entries, or -errno if the first could not be read. */
int sn_tap_read(int fd, uint8_t *headers, uint8_t *buffer, size_t size, sn_tap_packet *packets, uint32_t most,
                int *more);

/* Passes `count` payloads of `data` to the kernel as one TCP stream in as few packets as possible, with consecutive
   sequence numbers. `header` (Ethernet, IPv4 without options, TCP) is that of the first packet except lengths and IPv4
   checksum; PSH and FIN go on the last packet only. `segment` is the payload size of the frames that the data is said
   to have come in; 0: that of the longest payload (a kernel that forwards them must not make them longer). The TCP
   checksum is declared valid to the kernel: the payloads have been checked. Without payload one packet is made.
   `*written` receives the packets written. Returns 0, -errno for the first that failed, or -EINVAL for an illegal
   header or payload. */
int sn_tap_write(int fd, const uint8_t *header, uint32_t header_length, const uint8_t *data, size_t size,
                 const sn_payload_ref *pieces, uint32_t count, uint32_t segment, uint32_t *written);

/* Passes one frame to the kernel unchanged. Returns 0 or -errno. */
int sn_tap_write_frame(int fd, const uint8_t *frame, uint32_t length);

#endif
