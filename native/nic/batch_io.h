/* Datagrams in batches: sendmsg with UDP GSO, recvmmsg with UDP GRO. */
#ifndef SOFTNIC_BATCH_IO_H
#define SOFTNIC_BATCH_IO_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Address and port of a peer, as the socket that reaches it has them: a sockaddr_in of a socket of IPv4, a sockaddr_in6 of
   one of IPv6, where addresses of IPv4 are mapped (::ffff:a.b.c.d; RFC 4291, section 2.5.5.2). What is not used is 0. */
typedef struct {
    uint8_t name[28];
    uint32_t length;
} sn_endpoint;

/* Sends the datagrams at `offsets` of `data` over a UDP socket to one address. With `gso`, neighbours of equal size
   leave as one GSO datagram. Never blocks. Returns the datagrams accepted by the kernel, or -errno if the
   first was not (-EAGAIN: it would block; with `gso`, -EIO or -EINVAL may mean that the path does not support it). If
   fewer than `count`, another call returns the reason. */
int sn_udp_send(int fd, const sn_endpoint *to, const uint8_t *data, const uint32_t *offsets, const uint32_t *lengths,
                uint32_t count, int gso);

/* Sends frames likewise; the 8 bytes before each are overwritten by the VXLAN header of `vni`. */
int sn_vxlan_send(int fd, const sn_endpoint *to, uint32_t vni, uint8_t *data, const uint32_t *offsets,
                  const uint32_t *lengths, uint32_t count, int gso);

/* Frames [first, first + count) of one peer. */
typedef struct {
    uint32_t peer; /* index in the list of peers */
    uint32_t first;
    uint32_t count;
} sn_source;

/* Datagrams of an unknown source that may be a peer's that has moved, one or several that GRO has joined: where they lie
   until the next batch is received. */
typedef struct {
    sn_endpoint from;
    uint32_t offset;
    uint32_t length; /* of each but the last, which may be shorter */
    uint32_t size;   /* of all */
} sn_stranger;

/* Limit of those that one batch keeps. */
enum { SN_MOST_STRANGERS = 32 };

/* Results of sn_vxlan_receive. */
typedef struct {
    uint32_t messages;          /* received; fewer than requested: the socket is empty */
    uint32_t frames;            /* listed */
    uint32_t sources;           /* recorded */
    uint32_t malformed;         /* datagrams of peers without a frame */
    uint32_t encrypted;         /* of these, encrypted ones: their sender has a key */
    uint32_t unknown;           /* datagrams of unknown sources */
    sn_endpoint unknown_source; /* of the last of them */
    uint32_t strangers;         /* those of them that are kept: all by their first byte not VXLAN's (aead.h), */
    sn_stranger stranger[SN_MOST_STRANGERS]; /* if the list is of unchanged datagrams */
} sn_received;

/* Value of `vni` that lists datagrams unchanged, whatever they contain. */
enum { SN_ANY_DATAGRAM = -1 };

/* Enables GRO on a UDP socket. Returns 1 if the kernel has it, else 0. */
int sn_enable_gro(int fd);

/* Returns the index of an address in a list of peers, or -1. */
int64_t sn_find_peer(const sn_endpoint *peers, uint32_t count, const sn_endpoint *address);

/* Receives up to `max_messages` (at most 64) datagrams into `buffer`, `slot` bytes each, drops those of unknown
   sources, splits what GRO joined and strips VXLAN headers. `peers` holds the address of each peer, ascending by bytes.
   Datagrams without the I flag, of another VNI, longer than a slot or too short for an Ethernet header are dropped.
   offsets/lengths take `max_frames` entries; max_messages is lowered so that they suffice even if each message holds
   128 frames. `sources` takes one entry per message. Frames are in order; consecutive messages from one peer become one
   source. Returns 0 or -errno. */
int sn_vxlan_receive(int fd, int32_t vni, const sn_endpoint *peers, uint32_t peer_count, uint8_t *buffer, size_t slot,
                     uint32_t max_messages, uint32_t *offsets, uint32_t *lengths, uint32_t max_frames,
                     sn_source *sources, sn_received *found);

#endif
