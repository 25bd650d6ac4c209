/* Sent and unacknowledged ranges of a stream; softnic/tcp/scoreboard.py says what they are for. */
#ifndef SOFTNIC_SCOREBOARD_H
#define SOFTNIC_SCOREBOARD_H
/* C only */
#include <stdbool.h>
#include <stdint.h>
/* all */

enum { SN_OUT = 0, SN_SACKED = 1, SN_LOST = 2 };

typedef struct {
    int64_t start;
    int64_t end;
    int64_t wire_bytes;
    double sent_at;
    int64_t delivered; /* this and the next two: the scoreboard's when the range was sent */
    double delivered_at;
    double first_sent_at;
    uint8_t state;
    bool never_retransmitted;
    bool app_limited;
} sn_range;

/* FIELDS */
typedef struct {
    int64_t pipe;
    int64_t sacked;
    int64_t lost;
    int64_t highest;
    int64_t delivered;
    int64_t lost_total;
    double delivered_at;
    double first_sent_at;
    int64_t app_limited_until;
    int64_t first; /* index of the first range */
    int64_t count;
    int64_t capacity;
    sn_range *ranges;
} sn_scoreboard;

/* What one acknowledgement tells. */
typedef struct {
    double now;
    int64_t flight_size;
    int64_t wire_bytes;
    double rtt;
    double srtt;
    int64_t una;
    int64_t nxt;
    int64_t pipe;
    int64_t delivered;
    int64_t lost_total;
    bool has_newest;
    bool never_retransmitted;
    bool reordered;
    sn_range newest;
} sn_ack;
/* END OF FIELDS */

/* The first range. */
sn_range *sn_scoreboard_first(const sn_scoreboard *board);
void sn_scoreboard_mark_lost(sn_scoreboard *board, sn_range *range);

/* The first contiguous bytes marked lost: to `range`. Returns false if there are none. */
bool sn_scoreboard_first_lost(const sn_scoreboard *board, int64_t *range);

/* Whether no range in flight is a retransmission. */
bool sn_scoreboard_sent_once(const sn_scoreboard *board);

/* C only */

/* Whether `more` ranges can be added without allocating memory. */
bool sn_scoreboard_has_room(const sn_scoreboard *board, int64_t more);

/* Unacknowledged wire bytes: RFC 5681's FlightSize. */
static inline int64_t sn_scoreboard_size(const sn_scoreboard *board)
{
    return board->pipe + board->sacked + board->lost;
}

/* METHODS: views.c shows the functions from here on to Python (flow_steps.h). Those that return int return 0, or -1 if
   there is no memory; then they have changed nothing. */

void sn_ack_begin(sn_ack *ack, double now, int64_t flight_size);
int sn_scoreboard_sent(sn_scoreboard *board, int64_t start, int64_t end, int64_t wire_bytes, double now);
int sn_scoreboard_sent_again(sn_scoreboard *board, int64_t start, int64_t end, int64_t wire_bytes, double now);
void sn_scoreboard_mark_app_limited(sn_scoreboard *board);
void sn_scoreboard_arrived(sn_scoreboard *board, const sn_ack *ack);
void sn_scoreboard_acknowledge(sn_scoreboard *board, int64_t una, sn_ack *ack);
int sn_scoreboard_sack(sn_scoreboard *board, int64_t start, int64_t end, sn_ack *ack);
int sn_scoreboard_mark_head_lost(sn_scoreboard *board, int64_t wire_bytes);
void sn_scoreboard_on_sack_reneging(sn_scoreboard *board);
void sn_scoreboard_undo_lost_marks(sn_scoreboard *board);
double sn_scoreboard_detect(sn_scoreboard *board, double sent_at, int64_t end, double wait, double now);
void sn_scoreboard_time_out(sn_scoreboard *board, double rtt, double window, double now);
void sn_scoreboard_clear(sn_scoreboard *board);

/* END OF METHODS */
/* all */

#endif
