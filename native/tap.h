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

/* One packet that the kernel has sent. `kind` is SN_KIND_TCP for what sn_cut can cut (IPv4 without options and no
   fragment), SN_KIND_OTHER for any other frame, its checksum complete, and SN_DROP_FRAME for what cannot be sent.
   Numbers are in host order; those from `payload` on count only for TCP, those from `src` on for a TCP segment. */
typedef struct {
    uint32_t offset;        /* of the Ethernet frame in the buffer */
    uint32_t length;        /* of the Ethernet frame */
    uint32_t payload;       /* TCP payload bytes, at offset + header_length */
    uint32_t src;
    uint32_t dst;
    uint32_t seq;
    uint32_t ack;
    uint16_t sport;
    uint16_t dport;
    uint16_t header_length; /* Ethernet, IPv4 and TCP with options */
    uint16_t segment;       /* TCP payload bytes that the kernel wants in a frame; 0: it is one frame */
    uint8_t kind;
    uint8_t flags;
    uint8_t tos;
    uint8_t reserved;
} sn_tap_packet;

/* Reads up to `most` packets into `buffer`, one after the other, as long as SN_TAP_PACKET bytes are free. Never waits.
   Returns how many (0: none waits), or -errno if the first could not be read. */
int sn_tap_read(int fd, uint8_t *buffer, size_t size, sn_tap_packet *packets, uint32_t most);

/* Hands the kernel the bytes of `count` pieces of `data` as one TCP stream, in as few packets as can be: those behind the
   first have sequence numbers that go on. `header` (Ethernet, IPv4 without options, TCP) is the first one's but for its
   lengths and IPv4 checksum; PSH and FIN go on the last packet only. Frames of up to `segment` payload bytes are what
   they are said to have come in. The TCP checksum is left to the kernel, which takes it for right: the pieces have been
   checked. Without payload one packet is made. `*written` gets the packets written. Returns 0, or -errno for the first
   that was not, or -EINVAL for a header or pieces that are not legal. */
int sn_tap_write(int fd, const uint8_t *header, uint32_t header_length, const uint8_t *data, size_t size,
                 const sn_piece *pieces, uint32_t count, uint32_t segment, uint32_t *written);

/* Hands the kernel one frame as it is. Returns 0 or -errno. */
int sn_tap_pass(int fd, const uint8_t *frame, uint32_t length);

#endif
