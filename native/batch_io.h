/* Datagrams in batches: sendmsg with UDP GSO, recvmmsg with UDP GRO; waiting with nanoseconds. */
#ifndef SOFTNIC_BATCH_IO_H
#define SOFTNIC_BATCH_IO_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* Sends frames over a UDP socket to one address (host order), each with the 8 bytes before it overwritten by the
   VXLAN header of `vni`. Neighbours of equal size leave as one GSO datagram where `gso` is 1. Never waits.
   Returns the frames handed to the kernel, or -errno if the first of them could not be (-EAGAIN: it would block;
   with `gso`, -EIO or -EINVAL may mean that the way out cannot do it). Fewer than `count`: the next one could not
   be, and calling again tells why. */
int sn_vxlan_send(int fd, uint32_t address, uint16_t port, uint32_t vni, uint8_t *data,
                  const uint32_t *offsets, const uint32_t *lengths, uint32_t count, int gso);

/* Frames [first, first + count) came from this address. */
typedef struct {
    uint32_t address;
    uint16_t port;
    uint16_t reserved;
    uint32_t first;
    uint32_t count;
} sn_source;

/* Turns GRO on for a UDP socket. Returns 1 if the kernel has it, else 0. */
int sn_enable_gro(int fd);

/* Receives up to `max_messages` (at most 64) datagrams into `buffer`, `slot` bytes each, splits what GRO joined and
   strips VXLAN headers. Datagrams without the I flag, of another VNI, longer than a slot or too short for an
   Ethernet header are left out and counted in `*rejected`. offsets/lengths take `max_frames` entries; max_messages
   is lowered so that they suffice even if each message holds 128 frames. `sources` takes one entry a message.
   Frames are in order; consecutive messages from one address become one source.
   Returns the number of sources (0 when nothing acceptable waited), or -errno. */
int sn_vxlan_receive(int fd, uint32_t vni, uint8_t *buffer, size_t slot, uint32_t max_messages,
                     uint32_t *offsets, uint32_t *lengths, uint32_t max_frames, sn_source *sources,
                     uint32_t *frames, uint32_t *rejected);

/* Waits until descriptors that the epoll instance `fd` watches have something to say, `timeout_ns` nanoseconds at most
   (-1: for ever), which is precise where epoll_wait's own timeouts are whole milliseconds. `descriptors` and `masks` take
   `most` entries. The descriptors are known by their numbers, as Python's select.epoll registers them. Returns how
   many have (0: none in time), or -errno (-EINTR: a signal came; -ENOSYS: no Linux). */
int sn_epoll_wait(int fd, int64_t timeout_ns, int32_t *descriptors, uint32_t *masks, uint32_t most);

/* Lets the calling thread's waits end on time instead of up to 50 us late. Returns 0 or -errno. */
int sn_wake_on_time(void);

#endif
