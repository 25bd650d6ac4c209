/* The steps of collectives on one rank: what is sent to and received from other ranks, and combined, in which order.

   Python plans an operation as steps (softnic/collectives/collective_op.py) and posts them to the queues of streams. The
   functions here move bytes, between two turns of Python or within a turn in C (turn_engine.c). Steps feed each other: a
   received block is forwarded, or combined further, as far as it is `ready`. Sent bytes are read by the stream where they
   lie. Memory that is still being sent is copied before it is overwritten. That is rare: a block overwrites what was sent
   of it with a result that contains it, so the sent bytes have been acknowledged. */
#ifndef SOFTNIC_ENGINE_H
#define SOFTNIC_ENGINE_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "tcp/fast_path.h"
#include "tcp/flow.h"
/* all */

typedef struct sn_step sn_step;
typedef struct sn_step_queue sn_step_queue;

/* An operation. */
typedef struct sn_engine_op {
    int64_t number;
    int64_t pending; /* steps and headers that are not done */
    int64_t most_copied; /* limit of what is copied at its end instead of waiting for acknowledgements */
    sn_step *steps;
    uint32_t step_count;
    struct sn_engine_op *next_done;
} sn_engine_op;

enum {
    SN_STEP_SEND = 1,    /* sends a block */
    SN_STEP_COPY = 2,    /* receives a block that replaces what is in its place */
    SN_STEP_COMBINE = 3, /* receives a block that is combined with this rank's contribution, or the result so far */
    SN_STEP_ROUND = 4,   /* a block that this rank has from the start, rounded by the codec in parts as it is sent */
    SN_STEP_STAGED = 5   /* a block of this rank's contribution, which its process is still copying to its memory */
};

/* What happens to one block; those of the first three kinds are in a queue. Sizes are bytes. */
struct sn_step {
    uint8_t kind;
    bool rounds;    /* COMBINE: the combination is rounded by the codec */
    bool is_last;   /* SEND: no later step of the operation sends on this stream */
    uint8_t tos;    /* SEND: of the tag */
    bool words;     /* SEND: the tag selects an offload */
    uint16_t block; /* SEND: bytes between two cuts of its range */
    uint32_t tag;   /* SEND: its number */
    int32_t operation;
    int32_t type;
    int32_t item; /* bytes of an element */
    int32_t codec;
    int32_t parameter;
    uint32_t divisor; /* COMBINE: by which the combination is divided; 0: it is not */
    sn_engine_op *op;
    sn_step_queue *queue;
    sn_step *next; /* in the queue */
    sn_step *before; /* COPY, COMBINE, ROUND: what fills the block first; NULL: all of it is there */
    sn_step *source; /* SEND: what makes the block ready; NULL: all of it is */
    sn_step **readers; /* COPY, COMBINE: sends of the memory that is overwritten */
    uint32_t reader_count;
    uint8_t *memory; /* where the block lies */
    uint64_t owner; /* SEND: of the memory (send_buffer.h) */
    const uint8_t *base; /* COMBINE: the other operand */
    int64_t size;
    int64_t pad_left;   /* zeros that follow on the wire */
    int64_t done;       /* bytes received, or handed over to the stream */
    int64_t ready;      /* bytes from the first on that are final; not of SEND */
    int64_t zerocopied; /* SEND: of `done`, those up to the last one taken without a copy */
    int64_t first_position; /* SEND: the stream's zero-copy bytes before this step */
    int64_t mark;           /* SEND: and with it */
};

/* The steps of one stream to another rank, sends and receives, each strictly in order. Received bytes belong to the first
   receive, if the header of its operation has matched: `matched` is the number of the last such operation. */
struct sn_step_queue {
    sn_flow *flow;
    int64_t matched;
    sn_step *incoming;
    sn_step *last_incoming;
    sn_step *outgoing;
    sn_step *last_outgoing;
    bool no_memory;
    struct sn_engine *engine;
};

/* The header that another rank is to send for an operation: the same bytes as this rank's. */
typedef struct sn_header {
    sn_engine_op *op;
    const uint8_t *data;
    int64_t size;
    struct sn_header *next;
} sn_header;

/* The stream of messages from another rank. Headers that come before this rank's own request stay in the flow. A
   message that is neither kept nor the header expected next makes the stream Python's (`in_python`), until Python has
   read all of it. */
typedef struct sn_header_queue {
    sn_flow *flow;
    sn_step_queue *steps; /* which may read blocks once the header has matched */
    struct sn_engine *engine;
    sn_header *first; /* expected */
    sn_header *last;
    uint8_t start[2]; /* of every header, behind its length */
    int64_t checked;  /* kept bytes that are whole headers */
    bool in_python;
} sn_header_queue;

/* Has what arrives passed to the steps or the headers of collectives instead of an application; NULL: to neither. */
void sn_flow_attach(sn_flow *flow, sn_step_queue *steps, sn_header_queue *headers);

/* The highest rate at which the flows of an engine sent, and the other ranks acknowledged it, over a tenth of a second in
   which most flows had bytes to send. */
typedef struct {
    double began_at;       /* when the present window began */
    int64_t sent;          /* wire bytes until then */
    int64_t delivered;     /* those that had arrived */
    uint32_t most_waiting; /* flows with bytes to send, at most, since there were none for long */
    bool limited;          /* half of those had some then */
    double rate;           /* wire bytes per second; 0: there was no such window */
} sn_rate_meter;

typedef struct sn_engine {
    sn_step_queue **receive_order;
    sn_step_queue **send_order;
    sn_header_queue **headers;
    uint32_t queue_count;
    uint32_t header_count;
    bool is_active; /* there are operations */
    int64_t posted; /* number of the last collective */
    sn_engine_op *first_done;
    sn_engine_op *last_done;
    sn_rate_meter meter;
    struct sn_engine *next; /* of the turn */
} sn_engine;

enum { SN_STREAM_UNREAD = 1, SN_STREAM_ENDED = 2 };

/* SN_STREAM_UNREAD if one of the first `control` flows has unread bytes, and SN_STREAM_ENDED if one of all `count` is not
   open in both directions. */
uint32_t sn_look_at_streams(const sn_flow *const *flows, uint32_t control, uint32_t count);

/* Appends a step to its queue. */
void sn_step_post(sn_step *step);

/* Forgets all steps. */
void sn_step_queue_clear(sn_step_queue *queue);

/* Counts a step or a header of an operation as done. */
void sn_engine_count_done(sn_engine *engine, sn_engine_op *op);

/* Measures the rate of an engine, at every turn in which it is active. */
void sn_engine_look_at_rate(sn_engine *engine, double now);

/* Appends a header to those that are expected. */
void sn_header_expect(sn_header_queue *queue, sn_header *header);

/* Forgets the headers that are expected. */
void sn_header_queue_clear(sn_header_queue *queue);

/* Counts the first header that is expected as matched. */
void sn_header_queue_match(sn_header_queue *queue);

/* Compares received bytes with the headers that are expected. Returns how many were used: whole headers. */
int64_t sn_header_queue_take(sn_header_queue *queue, const uint8_t *data, int64_t size);

/* The same for the received bytes of the flow, which are to be consumed; sets `in_python`. */
int64_t sn_header_queue_receive(sn_header_queue *queue);

/* The number of an operation whose steps are done and whose memory no stream reads any more, or 0. At most 1 MiB of an
   operation's memory is copied rather than wait for acknowledgements. */
int64_t sn_engine_take_completed(sn_engine *engine);

/* Whether there is such an operation. */
bool sn_engine_has_completed(const sn_engine *engine);

/* Gives received bytes to the steps that wait for them. Returns how many were used, and sets `no_memory` if that is why
   not all of them were. `sn_step_queue_settle` is to be called before anything else. */
int64_t sn_step_queue_take(sn_step_queue *queue, const uint8_t *data, int64_t size);

/* Makes what was received ready, as far as whole coding blocks are complete. */
void sn_step_queue_settle(sn_step_queue *queue);

/* The same for the received bytes of the flow. Returns how many were used; they are to be consumed. */
int64_t sn_step_queue_receive(sn_step_queue *queue);

/* Where the next `size` bytes will be copied to, if nothing is to be done with them before; NULL: anywhere. */
uint8_t *sn_step_queue_place(const sn_step_queue *queue, int64_t size);

/* Up to where a receive may write now. */
int64_t sn_step_writable_end(const sn_step *step);

/* Ensures that no stream reads the first `end` bytes of a receive's memory. Returns -1 if there is no memory. */
int sn_step_release(sn_step *step, int64_t end);

enum {
    SN_QUEUE_WAKE = 1,  /* the flow has something to send */
    SN_QUEUE_MEMORY = 2 /* the send buffer needs memory, which Python allocates; then it goes on */
};

/* Hands the stream what may be sent. */
uint32_t sn_step_queue_send(sn_step_queue *queue);

/* Whether the steps need a stream that still takes or brings bytes. */
bool sn_step_queue_is_unfinished(const sn_step_queue *queue);

#endif
