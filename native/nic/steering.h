/* Receive-side scaling: which queue of a NIC has a flow, by a hash that is the same at both ends; and frames that arrived
   at another queue than their flow's.

   A flow has a lane, one of SN_FLOW_LANES, which every number of queues that a NIC may have divides: what is on one lane
   is on one queue of every NIC. Who opens a connection chooses its lane by its port: one port in
   SN_FLOW_LANES is on a given lane.

   The kernel picks the queue of a datagram by the same hash (sn_steer). It gets the first frame only of those that it has
   joined, and no program at all on some systems, so each queue checks, and passes on what is not its own. */
#ifndef SOFTNIC_STEERING_H
#define SOFTNIC_STEERING_H
/* C only */
#include <stdbool.h>
#include <stdint.h>
/* all */

/* Limit of the queues of a NIC, and the least common multiple of the numbers that it may have: 1, 2, 3, 4, 6, 8. */
enum { SN_MOST_QUEUES = 8, SN_FLOW_LANES = 24 };

/* Limits of the frames that wait for a queue. */
enum { SN_INBOX_BYTES = 2 << 20, SN_INBOX_FRAMES = 4096 };

/* Returns the queue, of `queues`, that has the flow between two addresses and their ports; which end is which does not
   matter. Frames that are not TCP are queue 0's. With SN_FLOW_LANES in place of `queues`, returns the lane. */
uint32_t sn_queue_of(uint32_t address, uint32_t other, uint16_t port, uint16_t other_port, uint32_t queues);

/* Returns the first port from `port` on, below `end`, that gives a flow to `other` and `other_port` this queue, of
   `queues`; `end` if there is none. */
uint32_t sn_next_port(uint32_t address, uint32_t other, uint16_t other_port, uint32_t queues, uint32_t queue,
                      uint32_t port, uint32_t end);

/* Returns the lane of a frame: that of its flow, or 0 if it is not TCP's. */
uint32_t sn_frame_lane(const uint8_t *frame, uint32_t length);

/* Returns the length of the hello (aead.h) that a datagram is by its kind and length, or 0. */
uint32_t sn_hello_length(const uint8_t *datagram, uint32_t length);

/* Returns the queue, of `queues`, that opens a sealed datagram: that of its frame's lane (aead.h), which only its sender
   can have written; of hellos the first; of anything else `own`, which is to count it. */
uint32_t sn_sealed_queue(const uint8_t *datagram, uint32_t length, uint32_t queues, uint32_t own);

/* Has the kernel pass each datagram, of VXLAN or `sealed`, to the socket of its queue: the sockets that share an address
   and port (SO_REUSEPORT), numbered in the order in which they were bound; `fd` is one of them. Returns 0 or -errno. */
int sn_steer(int fd, uint32_t queues, bool sealed);

/* Frames on their way from other queues to one: any thread may put, its own takes. */
typedef struct sn_inbox sn_inbox;

/* `event` is an eventfd that is written when frames wait. Returns NULL if there is no memory. */
sn_inbox *sn_inbox_new(int event);
void sn_inbox_free(sn_inbox *inbox);

/* Copies frames. Returns how many: the others do not fit. */
uint32_t sn_inbox_put(sn_inbox *inbox, const uint8_t *data, const uint32_t *offsets, const uint32_t *lengths,
                      uint32_t count);

/* Takes all frames; they are valid until the next call. Returns their number. */
uint32_t sn_inbox_take(sn_inbox *inbox, uint8_t **data, uint64_t *size, uint32_t **offsets, uint32_t **lengths);

#endif
