/* A kernel's packets through its TAP device: super-segments both ways, as a driver and its card hand them to each other. */
#ifndef SOFTNIC_TAP_H
#define SOFTNIC_TAP_H
/* C only */
#include <stddef.h>
#include <stdint.h>

#include "packets.h"
/* all */

/* Bytes of virtio-net's header (virtio 1.2, section 5.1.6) before each packet, without its num_buffers. */
enum { SN_TAP_HEADER = 10 };

/* Room that a read needs: the longest packet with its header. */
enum { SN_TAP_PACKET = 10 + 14 + 65535 };

/* Room for the headers of one packet: virtio's, Ethernet, IPv4 without options, TCP. */
enum { SN_TAP_SLOT = 10 + 94 };

/* What the kernel has sent: a packet, or some of one flow that it sent one after the other (a run): super-segments of
   which each goes on where the last one ended, or bare ACKs of which only the last matters. `kind` is SN_KIND_TCP for what sn_cut can cut (IPv4 without options and no
   fragment), SN_KIND_OTHER for any other frame, its checksum complete, and SN_DROP_FRAME for what cannot be sent.
   Numbers are in host order; those from `src` on count only for TCP. */
typedef struct {
    uint32_t header;        /* of a TCP segment: where its Ethernet header begins, in `headers` */
    uint32_t offset;        /* of its payload in `buffer`; of the whole frame, where it is not TCP */
    uint32_t length;        /* bytes there */
    uint32_t packets;       /* that crossed the device */
    uint32_t src;
    uint32_t dst;
    uint32_t seq;
    uint32_t ack;
    uint16_t sport;
    uint16_t dport;
    uint16_t header_length; /* Ethernet, IPv4 and TCP with options; 0 where it is not TCP */
    uint16_t segment;       /* TCP payload bytes that the kernel wants in a frame; 0: it is one frame */
    uint16_t window;
    uint8_t kind;
    uint8_t flags;          /* of all packets, ORed; only PSH and FIN can differ */
    uint8_t tos;
    uint8_t unused[3];
} sn_tap_packet;

/* Reads packets, as long as `buffer` has SN_TAP_PACKET bytes free and there is an entry of `packets` and a slot
   (SN_TAP_SLOT bytes) of `headers` for each of up to `most`. Payloads lie one after the other, so that those of a run
   are one piece. Never waits. `*more` says whether there may be more to read: 0, if nothing more waits. Returns how many
   entries, or -errno if the first could not be read. */
int sn_tap_read(int fd, uint8_t *headers, uint8_t *buffer, size_t size, sn_tap_packet *packets, uint32_t most, int *more);

/* Hands the kernel the bytes of `count` pieces of `data` as one TCP stream, in as few packets as can be: those behind the
   first have sequence numbers that go on. `header` (Ethernet, IPv4 without options, TCP) is the first one's but for its
   lengths and IPv4 checksum; PSH and FIN go on the last packet only. Frames of up to `segment` payload bytes are what
   they are said to have come in; 0: as many as the longest piece has (a kernel that passes them on must not make them
   longer than they came). The TCP checksum is left to the kernel, which takes it for right: the pieces have been
   checked. Without payload one packet is made. `*written` gets the packets written. Returns 0, or -errno for the first
   that was not, or -EINVAL for a header or pieces that are not legal. */
int sn_tap_write(int fd, const uint8_t *header, uint32_t header_length, const uint8_t *data, size_t size,
                 const sn_payload_ref *pieces, uint32_t count, uint32_t segment, uint32_t *written);

/* Hands the kernel one frame as it is. Returns 0 or -errno. */
int sn_tap_write_frame(int fd, const uint8_t *frame, uint32_t length);

#endif
