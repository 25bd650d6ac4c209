/* Out-of-order data of a flow, and the SACK blocks that report it: softnic/tcp/reassembly.py says how it is kept. */
#ifndef SOFTNIC_REASSEMBLY_H
#define SOFTNIC_REASSEMBLY_H
/* C only */
#include <stdbool.h>
#include <stdint.h>

#include "tcp/receive_buffer.h"
/* all */

/* Blocks that are reported at a time: of islands, and a D-SACK. */
enum { SN_MOST_ISLANDS = 4, SN_MOST_REPORTED = SN_MOST_ISLANDS + 1 };

/* Bytes that the buffers of all connections of a node may take (softnic/tcp/budget.py). */
typedef struct {
    int64_t free;
    int64_t held; /* by out-of-order data, which may be dropped */
} sn_budget;

/* Bytes that wait, from `start` on. */
typedef struct {
    int64_t start;
    sn_chunk *chunk;
    uint32_t segments; /* that it is made of */
} sn_waiting;

/* FIELDS */
typedef struct {
    bool has_gap;
    bool has_repeated;
    int64_t repeated_start;
    int64_t repeated_end;
    int64_t most;
    int64_t charge;
    int64_t size;
    int64_t cost;
    int64_t paid;
    int64_t first; /* index of the first chunk */
    int64_t count;
    int64_t capacity;
    int64_t recent_count;
    int64_t recent[4];       /* a position in each island to report, the latest last */
    sn_waiting *waiting;     /* in stream order */
    sn_receive_buffer ready; /* next in order, and counted as received, but not delivered yet */
    sn_budget *budget;
} sn_reassembly;
/* END OF FIELDS */

/* A chunk for `size` bytes that wait; NULL: there is no memory. */
sn_chunk *sn_reassembly_chunk(uint32_t size);

/* Keeps the bytes of a chunk, not empty, which start behind a gap. `paid`: bytes of memory that the flow has been charged for
   already. Returns 0; then the chunk is the reassembly's. Or the charge that the budget has not enough bytes for, or -1 if
   there are too many chunks, or no memory; then nothing has changed. */
int64_t sn_reassembly_keep(sn_reassembly *reassembly, int64_t position, sn_chunk *chunk, int64_t paid);

/* Whether `size` bytes can be kept without a larger budget or more chunks. */
bool sn_reassembly_has_room(const sn_reassembly *reassembly, uint32_t size);

/* Moves what follows on `position` up to the next gap to `ready`; drops what lies before. Returns the bytes. */
int64_t sn_reassembly_take(sn_reassembly *reassembly, int64_t position);

/* Moves what is ready behind the other received bytes. */
void sn_reassembly_deliver(sn_reassembly *reassembly, sn_receive_buffer *buffer);

/* Bytes [start, end) arrived a second time. */
void sn_reassembly_note_repeated(sn_reassembly *reassembly, int64_t start, int64_t end);

/* The blocks to report now, the most important first: start and end of each, to `blocks`, which has room for
   SN_MOST_REPORTED. A D-SACK is reported once. Returns their number. */
uint32_t sn_reassembly_report(sn_reassembly *reassembly, int64_t *blocks);

/* The chunk with this index. */
const sn_waiting *sn_reassembly_at(const sn_reassembly *reassembly, int64_t index);

/* Drops all that waits. Returns the number of segments. */
int64_t sn_reassembly_clear(sn_reassembly *reassembly);
/* C only */

/* Frees all memory; what was charged stays so. */
void sn_reassembly_free(sn_reassembly *reassembly);
/* all */

#endif
