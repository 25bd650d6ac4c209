/* Datagrams in batches: sendmsg with UDP GSO, recvmmsg with UDP GRO. */
#ifndef SOFTNIC_BATCH_IO_H
#define SOFTNIC_BATCH_IO_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Sends datagrams over a UDP socket to one address (host order), as they lie at `offsets` of `data`. Neighbours of
   equal size leave as one GSO datagram where `gso` is 1. Never waits.
   Returns the datagrams handed to the kernel, or -errno if the first of them could not be (-EAGAIN: it would block;
   with `gso`, -EIO or -EINVAL may mean that the way out cannot do it). Fewer than `count`: the next one could not
   be, and calling again tells why. */
int sn_udp_send(int fd, uint32_t address, uint16_t port, const uint8_t *data, const uint32_t *offsets,
                const uint32_t *lengths, uint32_t count, int gso);

/* The same for frames, each with the 8 bytes before it overwritten by the VXLAN header of `vni`. */
int sn_vxlan_send(int fd, uint32_t address, uint16_t port, uint32_t vni, uint8_t *data,
                  const uint32_t *offsets, const uint32_t *lengths, uint32_t count, int gso);

/* Frames [first, first + count) came from this peer. */
typedef struct {
    uint32_t peer; /* its place in the list of peers */
    uint32_t first;
    uint32_t count;
} sn_source;

/* What one call of sn_vxlan_receive found. */
typedef struct {
    uint32_t messages;         /* the kernel gave; fewer than asked for: the socket is empty */
    uint32_t frames;           /* listed */
    uint32_t sources;          /* noted */
    uint32_t malformed;        /* datagrams of peers that hold no frame */
    uint32_t encrypted;        /* of them, those that are sealed: their sender has a key */
    uint32_t unknown;          /* datagrams from elsewhere, not looked into */
    uint32_t unknown_address; /* where the last of them came from */
    uint16_t unknown_port;
} sn_received;

/* What `vni` is where datagrams are to be listed as they are, whatever they hold. */
enum { SN_ANY_DATAGRAM = -1 };

/* Turns GRO on for a UDP socket. Returns 1 if the kernel has it, else 0. */
int sn_enable_gro(int fd);

/* Receives up to `max_messages` (at most 64) datagrams into `buffer`, `slot` bytes each, leaves out those that come
   from none of `peers`, splits what GRO joined and strips VXLAN headers. `peers` holds address << 16 | port of each, in
   ascending order. Datagrams without the I flag, of another VNI, longer than a slot or too short for an Ethernet header
   are left out too. offsets/lengths take `max_frames` entries; max_messages is lowered so that they suffice even if each
   message holds 128 frames. `sources` takes one entry a message.
   Frames are in order; consecutive messages from one peer become one source. Returns 0 or -errno. */
int sn_vxlan_receive(int fd, int32_t vni, const uint64_t *peers, uint32_t peer_count, uint8_t *buffer, size_t slot,
                     uint32_t max_messages, uint32_t *offsets, uint32_t *lengths, uint32_t max_frames,
                     sn_source *sources, sn_received *found);

#endif
