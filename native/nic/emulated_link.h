/* An emulated link (softnic/link/emulation.py, where its rules are): its queue, its clock, and what happens by chance.

   Frames in flight are copied into a ring of bytes, in the order in which they leave, each behind SN_HEADROOM free bytes,
   and leave from it in bursts. The ring grows with them and becomes smaller when it has been almost empty for a second.
   Late frames, which those of later batches may overtake, lie beside it (emulated_late.h). Times are seconds on the
   caller's clock. */
#ifndef SOFTNIC_EMULATED_LINK_H
#define SOFTNIC_EMULATED_LINK_H
/* C only */
#include <stdint.h>

#include "nic/batch_io.h"
#include "nic/emulated_chance.h"
/* all */

typedef struct sn_emulated_late sn_emulated_late;

/* A frame in the ring. */
typedef struct {
    double due;        /* when it arrives at the far end */
    double earliest;   /* end of its delay: it leaves no sooner */
    uint64_t position; /* of its first byte in the ring */
    uint64_t period;   /* number of the busy period that it was sent in */
    uint64_t batch;    /* number of the batch that it was sent in */
    uint64_t packet_id;
    uint32_t length;
} sn_emulated_frame;

/* Frames of one link that wait in a bottleneck, and when it will have sent them (emulated_line.h). */
enum { SN_EMULATED_BATCHES = 256 };

typedef struct {
    double end;
    int64_t bytes;
} sn_emulated_batch;

typedef struct {
    sn_emulated_batch batches[SN_EMULATED_BATCHES];
    uint32_t first, count;
    int64_t bytes;
} sn_emulated_line;

typedef struct {
    /* Set by the owner, before the first frame. */
    double byte_s; /* time that the bottleneck takes for a byte; 0: there is none */
    double delay_s;
    double coalesce_s;   /* minimum interval between bursts */
    double together_s;   /* frames due within this always leave at once */
    double ahead_s;      /* limit of how early a frame may leave */
    double backlog_part; /* share of the queue's drain time that leaves as one burst */
    int64_t limit;       /* bytes of the queue */
    int64_t high;        /* queue length at which `tx_space` is 0 */
    int64_t low;         /* to which it then must fall */
    int64_t least_space; /* smaller space counts as none */
    sn_emulated_chance chance;

    double free_at;         /* when the bottleneck will have sent all its frames, unless it is shared */
    double *shared_free_at; /* the same of one that links of several threads share, each with limits of its own; or NULL */
    sn_emulated_line *line; /* what waits in that one */
    double busy_until;      /* when the last frame of the current busy period is due */
    double moderated_until; /* no burst begins before */
    double burst_until;     /* until when frames of the latest burst are due; -infinity: not known yet */
    int64_t held_bytes;     /* bytes in flight: without a bottleneck the limit applies to them */
    uint32_t blocked;       /* `tx_space` was 0 and the queue has not yet drained */
    uint64_t sent;          /* frames that entered the bottleneck */
    uint64_t dropped_full;  /* frames that found the queue full, or no memory for a longer one */

    uint64_t burst_bytes; /* of the latest sn_emulated_burst, or accepted in the latest sn_emulated_push */
    uint64_t packet_id;   /* of the first frame of the latest sn_emulated_burst */
    uint8_t destination[6]; /* of that frame */
    uint8_t is_late;        /* that frame is the first late one */

    uint8_t *bytes; /* the ring, and where the next frame goes */
    uint64_t size, tail;
    sn_emulated_frame *frames; /* those numbered `first` to `end` - 1, modulo `capacity`, a power of two */
    double *period_ends;       /* end of each busy period of a frame in flight, by its number modulo `capacity` */
    uint64_t capacity, first, end;
    uint64_t busy_period;  /* number of the current busy period, ... */
    uint64_t last_busy;    /* of that of the last frame, ... */
    uint64_t period;       /* and of that in `period_ends` */
    uint64_t batch;
    uint64_t most_bytes, most_frames; /* that were in use since memory was last given back, ... */
    double trim_at;                   /* and when that is next considered */
    sn_emulated_late **late;          /* a heap */
    uint64_t late_count, late_capacity;
    uint64_t late_number; /* of the latest late frame */
} sn_emulated_link;

/* Returns a link without properties and frames, or NULL if there is no memory. */
sn_emulated_link *sn_emulated_new(void);
void sn_emulated_free(sn_emulated_link *link);

/* Shares the bottleneck of links in other threads from now on. Returns -1 if there is no memory. */
int sn_emulated_share(sn_emulated_link *link, double *free_at);

/* Drops all frames in flight and gives their memory back. */
void sn_emulated_clear(sn_emulated_link *link);

/* Sends a batch, all to one destination. Returns how many frames entered the bottleneck: none if there is no memory. */
uint32_t sn_emulated_send(sn_emulated_link *link, const uint8_t *data, const uint32_t *offsets,
                          const uint32_t *lengths, uint32_t count, uint64_t packet_id, double now);

/* Returns whether a burst begins now, and starts the interval before the next one. */
int sn_emulated_begins_burst(sn_emulated_link *link, double now);

/* Returns how many of the first frames leave now in the burst that has begun; 0: it has ended. They are of one batch, or
   with `across` of all batches to its destination; a late frame leaves alone. Sets `burst_bytes`, `packet_id`,
   `destination` and `is_late`. */
uint32_t sn_emulated_burst(sn_emulated_link *link, double now, int across);

/* Moves the `count` frames of the latest sn_emulated_burst to `out`, which has room for `burst_bytes` and each one's
   headroom. */
void sn_emulated_take(sn_emulated_link *link, uint32_t count, uint8_t *out, uint32_t *offsets, uint32_t *lengths);

/* Sends those frames over a UDP socket (see sn_vxlan_send) and removes those that the kernel accepts. Sets `burst_bytes`.
   Returns their number, or -errno if there are none. */
int64_t sn_emulated_push(sn_emulated_link *link, uint32_t count, int fd, const sn_endpoint *to, uint32_t vni, int gso);

/* Returns the bytes that may be sent now; 0 from a full queue on until it has drained. */
int64_t sn_emulated_tx_space(sn_emulated_link *link, double now);

/* Lets the sender continue if the queue has drained. */
void sn_emulated_unblock(sn_emulated_link *link, double now);

/* Returns when a burst can begin, or a blocked sender continue; infinity: never. */
double sn_emulated_next_time(const sn_emulated_link *link);

#endif
