/* Datagrams in batches: sendmsg with UDP GSO, recvmmsg with UDP GRO. */
#ifndef SOFTNIC_BATCH_IO_H
#define SOFTNIC_BATCH_IO_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Sends the datagrams at `offsets` of `data` over a UDP socket to one address (host order). With `gso`, neighbours of
   equal size leave as one GSO datagram. Never blocks. Returns the datagrams accepted by the kernel, or -errno if the
   first was not (-EAGAIN: it would block; with `gso`, -EIO or -EINVAL may mean that the path does not support it). If
   fewer than `count`, another call returns the reason. */
int sn_udp_send(int fd, uint32_t address, uint16_t port, const uint8_t *data, const uint32_t *offsets,
                const uint32_t *lengths, uint32_t count, int gso);

/* Sends frames likewise; the 8 bytes before each are overwritten by the VXLAN header of `vni`. */
int sn_vxlan_send(int fd, uint32_t address, uint16_t port, uint32_t vni, uint8_t *data,
                  const uint32_t *offsets, const uint32_t *lengths, uint32_t count, int gso);

/* Frames [first, first + count) of one peer. */
typedef struct {
    uint32_t peer; /* index in the list of peers */
    uint32_t first;
    uint32_t count;
} sn_source;

/* Results of sn_vxlan_receive. */
typedef struct {
    uint32_t messages;         /* received; fewer than requested: the socket is empty */
    uint32_t frames;           /* listed */
    uint32_t sources;          /* recorded */
    uint32_t malformed;        /* datagrams of peers without a frame */
    uint32_t encrypted;        /* of these, encrypted ones: their sender has a key */
    uint32_t unknown;          /* datagrams of unknown sources */
    uint32_t unknown_address; /* the source of the last of them */
    uint16_t unknown_port;
} sn_received;

/* Value of `vni` that lists datagrams unchanged, whatever they contain. */
enum { SN_ANY_DATAGRAM = -1 };

/* Enables GRO on a UDP socket. Returns 1 if the kernel has it, else 0. */
int sn_enable_gro(int fd);

/* Returns the index of an address in a list of peers, or -1. */
int64_t sn_find_peer(const uint64_t *peers, uint32_t count, uint32_t address, uint16_t port);

/* Receives up to `max_messages` (at most 64) datagrams into `buffer`, `slot` bytes each, drops those of unknown
   sources, splits what GRO joined and strips VXLAN headers. `peers` holds address << 16 | port of each peer, ascending.
   Datagrams without the I flag, of another VNI, longer than a slot or too short for an Ethernet header are dropped.
   offsets/lengths take `max_frames` entries; max_messages is lowered so that they suffice even if each message holds
   128 frames. `sources` takes one entry per message. Frames are in order; consecutive messages from one peer become one
   source. Returns 0 or -errno. */
int sn_vxlan_receive(int fd, int32_t vni, const uint64_t *peers, uint32_t peer_count, uint8_t *buffer, size_t slot,
                     uint32_t max_messages, uint32_t *offsets, uint32_t *lengths, uint32_t max_frames,
                     sn_source *sources, sn_received *found);

#endif
