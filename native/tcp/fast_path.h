/* The data of an established connection with SACK, the same as Python's (softnic/tcp/input.py, ack.py, output.py) to the
   bit. Each function either does all of a step or changes nothing and says that Python has to do it. */
#ifndef SOFTNIC_FAST_PATH_H
#define SOFTNIC_FAST_PATH_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "nic/packets.h"
#include "tcp/reassembly.h"
#include "tcp/receive_buffer.h"
#include "tcp/scoreboard.h"
#include "words.h"
/* all */

typedef struct sn_flow sn_flow;

enum {
    SN_INITIAL_WINDOW = 10,    /* frames (RFC 6928) */
    SN_WINDOW_STEPS = 8,       /* the window's right edge moves by at least this fraction (an eighth) of the buffer */
    SN_LONG_RTT_MS = 5,         /* from this minimum round trip on, "auto" is BBR */
    SN_CUBIC_BETA_PERCENT = 70, /* of the window that a loss leaves (RFC 9438, section 4.6) */
    SN_MOST_SACKS = 4,          /* blocks of a SACK option */
    SN_MOST_DUPLICATE_ACKS = 32, /* for one batch of out-of-order segments */
    SN_MOST_HEADER = 90         /* bytes of Ethernet, IPv4 and TCP header with timestamps and SACK blocks */
};

/* A received segment whose checks have passed; numbers in host order. */
typedef struct {
    uint32_t seq;
    uint32_t ack;
    uint32_t window; /* the field, not scaled */
    uint32_t flags;
    uint32_t ts_value;
    uint32_t ts_echo;
    uint32_t length; /* original bytes */
    uint32_t frames;
    uint32_t sack_blocks;
    uint32_t sacks[8]; /* the first number of each block, and the one behind it */
    bool has_timestamps;
} sn_segment;

/* C only */

/* The segment of a run of the batch in `data`. */
static inline sn_segment sn_segment_of(const sn_run *run, const uint8_t *data, uint32_t length)
{
    sn_segment segment = {
        .seq = run->seq,
        .ack = run->ack,
        .window = run->window,
        .flags = run->flags,
        .ts_value = run->ts_value,
        .ts_echo = run->ts_echo,
        .length = length,
        .frames = run->count,
        .sack_blocks = run->sack_blocks,
        .has_timestamps = run->has_timestamps,
    };
    for (uint32_t i = 0; i < 2 * segment.sack_blocks; i++)
        segment.sacks[i] = sn_load32be(data + run->sack_offset + 4 * i);
    return segment;
}
/* all */

/* What is left to do for Python after a step; 0 means that the whole step is left. */
enum {
    SN_DONE = 1,
    SN_DELIVER = 2,  /* the payload is next in order: append it to what is received */
    SN_WRITABLE = 4, /* a writer waits for space */
    SN_SCHEDULE = 8, /* a deadline is earlier than the time at which the timers are checked */
    SN_WAKE = 16,    /* there may be something to send */
    SN_DATA = 32,    /* send a segment with data, then call sn_flow_sent */
    SN_ACK = 64,     /* send an empty segment, and count it */
    SN_RECOVERS = 128, /* fast recovery has begun: count it */
    SN_UNDONE = 256,   /* a needless recovery was undone: count it */
    SN_KEEP = 512,     /* the payload is behind a gap: keep it with sn_flow_keep, and count it */
    SN_AGAIN = 1024    /* ask again when this segment is sent */
};

/* A segment to send. */
typedef struct {
    int64_t start; /* position of its first byte */
    int64_t end;
    int64_t frames; /* at most */
    uint32_t seq;
    uint32_t ack;
    uint32_t flags;
    uint32_t window;
    uint32_t ts_value;
    uint32_t ts_echo;
    uint32_t tos;
    uint32_t tag;          /* number of the tag (send_buffer.h) */
    uint32_t block_offset; /* offset of `start` from the start of its tagged range, modulo SN_LONGEST_BLOCK */
    const uint8_t *data;   /* the bytes from `start` on; valid until the next call of the stack */
    uint32_t sack_blocks;
    uint32_t sacks[8]; /* as in an sn_segment */
} sn_output;

/* Whether `sn_flow_receive` will take the segment; it changes nothing. */
bool sn_flow_receives(const sn_flow *flow, const sn_segment *segment, double now);

/* Processes a segment that `sn_flow_receives`. */
uint32_t sn_flow_receive(sn_flow *flow, const sn_segment *segment, double now);

/* Marks what `count` SACK blocks report, of `numbers` as in an sn_segment; there is one at least. Returns whether the first
   one is a D-SACK: below `snd_una` or within the second one (RFC 2883, section 4). */
bool sn_flow_take_blocks(sn_flow *flow, const uint32_t *numbers, uint32_t count, sn_ack *ack);

/* Whether the payload of a segment that `sn_flow_receives` starts behind a gap. */
bool sn_flow_is_ahead(const sn_flow *flow, const sn_segment *segment);

/* Keeps the payload of a segment with this number, which starts behind a gap, in a chunk. Returns as sn_reassembly_keep. */
int64_t sn_flow_keep(sn_flow *flow, uint32_t seq, sn_chunk *chunk);

/* Counts what waited for the bytes up to `rcv_nxt` as received; sn_reassembly_deliver delivers it. */
void sn_flow_fill_gap(sn_flow *flow);

/* The window field of a segment sent now; moves the right edge of the window if that is worth it. */
uint32_t sn_flow_advertise(sn_flow *flow);

/* Fills in the numbers of a segment from `position` on: from `seq` to `ts_echo`. */
void sn_flow_fill(sn_flow *flow, int64_t position, uint32_t flags, double now, sn_output *out);

/* What to send now, in at most `frames` frames: SN_DATA, SN_ACK or nothing, with SN_DONE. `link_full_at` is when the
   queue of the node's link was last full. Where it returns 0 it may have restarted an idle window and set the pacing
   rate; Python then does both again, with the same result. */
uint32_t sn_flow_output(sn_flow *flow, int64_t frames, double link_full_at, double now, sn_output *out);

/* Writes the Ethernet, IPv4 and TCP header of the first frame of `out`, at most SN_MOST_HEADER bytes. Lengths and checksums are zero.
   Returns the length. */
uint32_t sn_flow_header(const sn_flow *flow, const sn_output *out, const uint8_t *destination, const uint8_t *source,
                        uint16_t identification, uint8_t *header);

/* Accounts for the transmission of `consumed` bytes of `out`. */
uint32_t sn_flow_sent(sn_flow *flow, const sn_output *out, int64_t consumed, int64_t frames, int64_t wire_bytes,
                      double now);

/* Counts bytes that the reader has taken. Returns whether the window has opened by enough to tell the peer. */
bool sn_flow_consume(sn_flow *flow, int64_t count);

/* Its received bytes, and those behind a gap. */
sn_receive_buffer *sn_flow_receive_buffer(sn_flow *flow);
sn_reassembly *sn_flow_reassembly(sn_flow *flow);

/* Fills `out` with an empty segment that acknowledges everything received, and reports what is behind gaps. */
void sn_flow_ack(sn_flow *flow, double now, sn_output *out);

#endif
