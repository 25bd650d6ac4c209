/* The packets of one capture: a bounded ring of pcapng blocks (draft-ietf-opsawg-pcapng-02, enhanced packet blocks), and the
   stream socket that its reader has the other end of.

   A batch that does not fit is dropped whole, and counted. Of each packet no more bytes are copied than the capture keeps.
   Blocks that are queued leave when SN_CAPTURE_FLUSH_BYTES have come together, or when the owner flushes. */
#ifndef SOFTNIC_CAPTURE_RING_H
#define SOFTNIC_CAPTURE_RING_H
/* C only */
#include <stdbool.h>
#include <stdint.h>
/* all */

enum { SN_CAPTURE_HOST = 0, SN_CAPTURE_WIRE = 1 };

/* Direction of a packet at its interface: the two low bits of epb_flags. */
enum { SN_CAPTURE_INBOUND = 1, SN_CAPTURE_OUTBOUND = 2 };

enum {
    SN_CAPTURE_FLUSH_BYTES = 256 << 10,
    SN_CAPTURE_RESERVE = 512 /* bytes beyond the limit, for the statistics at the end */
};

typedef struct {
    int32_t fd;            /* a stream socket; -1: the owner takes the blocks */
    int32_t interfaces[2]; /* numbers of the host and the wire side in the file; -1 leaves a side out */
    uint32_t snaplen;      /* bytes of a packet that are kept at most */
    uint64_t limit;        /* bytes of queued blocks */
    bool is_ending;        /* no packet is recorded any more */
    int32_t error;         /* errno of the socket, which has no reader any more; 0: none */
    uint64_t received[2];  /* packets of the host and the wire side, ... */
    uint64_t dropped[2];   /* and of them those that did not fit */
    uint8_t *bytes;        /* the ring: `used` bytes from `first` on */
    uint64_t size, first, used;
    uint64_t unasked; /* bytes that were queued since the socket was last asked to take some */
    uint32_t length;  /* of the packet that is being queued, ... */
    uint32_t left;    /* and its bytes that are still to be kept */
} sn_capture_ring;

/* What the packets of a batch have in common. */
typedef struct {
    uint64_t time_ns; /* since 1970 */
    uint64_t number;  /* of the segment, unique among nodes; 0: none */
    uint32_t side;
    uint32_t direction;
} sn_capture_batch;

/* Allocates the ring, whose fields up to `limit` are set. Returns -1 if there is no memory. */
int sn_capture_ring_open(sn_capture_ring *ring);

/* Drops what is queued, and frees the ring's memory. */
void sn_capture_ring_close(sn_capture_ring *ring);

/* Queues a batch of frames, or drops it. */
void sn_capture_ring_frames(sn_capture_ring *ring, const sn_capture_batch *batch, const uint8_t *data,
                            const uint32_t *offsets, const uint32_t *lengths, uint32_t count);

/* Queues bytes that are blocks. Returns false if they do not even fit into the reserve. */
bool sn_capture_ring_append(sn_capture_ring *ring, const uint8_t *blocks, uint64_t size);

/* Sends as much as the socket takes, unless it has failed. */
void sn_capture_ring_flush(sn_capture_ring *ring);

/* Moves at most `size` queued bytes to `out`. Returns their number. */
uint64_t sn_capture_ring_take(sn_capture_ring *ring, uint8_t *out, uint64_t size);

/* C only */

/* Bytes of the block of a packet of `length` bytes. */
uint64_t sn_capture_ring_block(const sn_capture_ring *ring, const sn_capture_batch *batch, uint64_t length);

/* Counts `count` packets, whose blocks have `size` bytes. Returns whether they are to be put. */
bool sn_capture_ring_admit(sn_capture_ring *ring, const sn_capture_batch *batch, uint64_t count, uint64_t size);

/* Queues the block of a packet of an admitted batch: its head, its bytes piece by piece, and its end. What the capture does
   not keep is passed over. */
void sn_capture_ring_begin(sn_capture_ring *ring, const sn_capture_batch *batch, uint32_t length);
void sn_capture_ring_add(sn_capture_ring *ring, const uint8_t *data, uint32_t size);
void sn_capture_ring_end(sn_capture_ring *ring, const sn_capture_batch *batch);

/* Flushes if enough bytes were queued. */
void sn_capture_ring_settle(sn_capture_ring *ring);
/* all */

#endif
