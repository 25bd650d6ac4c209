/* Written and not yet acknowledged bytes of a stream; softnic/tcp/send_buffer.py says how they are kept. */
#ifndef SOFTNIC_SEND_BUFFER_H
#define SOFTNIC_SEND_BUFFER_H
/* C only */
#include <stdbool.h>
#include <stdint.h>
/* all */

/* Size of a coding block: tagged ranges are cut at multiples of it from the range's start, or at multiples of their
   codec's blocks if these are longer, at most SN_LONGEST_BLOCK. */
enum { SN_BLOCK = 64, SN_LONGEST_BLOCK = 512 };

/* Number of the tag of plain bytes, the first that every stream has. */
enum { SN_PLAIN_TAG = 0 };

/* Tag of the bytes from `start` up to the next range. */
typedef struct {
    int64_t start;
    int64_t origin; /* start of the tagged range; an odd cut does not change it */
    uint32_t tag;   /* Python's number of the tag */
    uint8_t tos;
    bool words; /* the tag selects an offload: the bytes are floats */
    uint16_t block; /* bytes between two places where the range may be cut */
    bool lossless; /* its codec alters no byte: an incomplete float is sent too, and begins a range behind it */
} sn_tag_range;

/* Bytes [start, end) of the stream in memory of their own. */
typedef struct {
    int64_t start;
    int64_t end;
    const uint8_t *data;
    uint64_t owner; /* of the memory: a run has one */
    uint8_t *copy; /* where `data` begins if it belongs to the buffer; NULL: it is the writer's (zero-copy) */
} sn_send_run;

/* FIELDS */
typedef struct {
    int64_t capacity;
    int64_t origin;
    int64_t start;
    int64_t end;
    bool blocks;
    bool floats;
    int64_t memory_address;
    int64_t memory_size;
    int64_t zerocopy_end;
    int64_t outstanding;
    int64_t completed_bytes;
    int64_t copied_out;
    int64_t runs_first;
    int64_t runs_count;
    int64_t runs_capacity;
    int64_t tags_first;
    int64_t tags_count;
    int64_t tags_capacity;
    sn_send_run *runs;
    sn_tag_range *tags;
} sn_send_buffer;
/* END OF FIELDS */

/* What may be sent from a position on. */
typedef struct {
    sn_tag_range range;
    int64_t end;
    bool closed; /* nothing can be added to the data before `end` */
} sn_extent;

/* The functions that return int return 0, or -1 if there is no memory; then they have changed nothing. */

/* Appends a tag range at `position`, in the place of one that begins there. */
int sn_send_buffer_tag(sn_send_buffer *buffer, int64_t position, uint32_t tag, uint8_t tos, bool words,
                       uint16_t block, bool lossless);
const sn_tag_range *sn_send_buffer_tag_range(const sn_send_buffer *buffer, int64_t position);
const sn_tag_range *sn_send_buffer_last_range(const sn_send_buffer *buffer);

/* The last position before `limit` where a segment from `position` may end if more follows. */
int64_t sn_tag_range_cut_before(const sn_tag_range *range, int64_t position, int64_t limit);
void sn_send_buffer_extent(const sn_send_buffer *buffer, int64_t position, bool flush, sn_extent *extent);

/* How many more bytes may be written. */
int64_t sn_send_buffer_free(const sn_send_buffer *buffer);

/* Whether `cut_at` needs no memory. */
bool sn_send_buffer_has_room(const sn_send_buffer *buffer);

/* Where the byte at `position` lies. */
const uint8_t *sn_send_buffer_data(const sn_send_buffer *buffer, int64_t position);

/* Appends bytes that stay where they are, in memory of `owner`. They must neither change nor vanish until `completed_bytes` has counted them,
   and must be as many as `sn_send_buffer_zerocopy_len` allows. */
int sn_send_buffer_send_zerocopy(sn_send_buffer *buffer, const uint8_t *data, int64_t size, uint64_t owner);

/* Copies the first `count` zero-copy bytes that are not acknowledged, or more, so that the writer has its memory back. */
int sn_send_buffer_copy_out(sn_send_buffer *buffer, int64_t count);

/* The run with this position, or NULL. */
sn_send_run *sn_send_buffer_run_at(const sn_send_buffer *buffer, int64_t position);
void sn_send_buffer_clear_runs(sn_send_buffer *buffer);

/* C only */
/* METHODS: views.c shows the functions from here on to Python (flow_steps.h). */

void sn_send_buffer_no_floats(sn_send_buffer *buffer);
int64_t sn_send_buffer_space(sn_send_buffer *buffer);
int64_t sn_send_buffer_reach(const sn_send_buffer *buffer, int64_t position, int64_t limit, bool flush);
int sn_send_buffer_cut_at(sn_send_buffer *buffer, int64_t position);
int64_t sn_send_buffer_segment_start(const sn_send_buffer *buffer, int64_t position);
int64_t sn_send_buffer_zerocopy_len(const sn_send_buffer *buffer, int64_t size);
void sn_send_buffer_release(sn_send_buffer *buffer, int64_t position);

/* END OF METHODS */
/* all */

#endif
