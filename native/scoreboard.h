/* Sent and unacknowledged ranges of a stream (softnic/tcp/scoreboard.py says what they are for). */
#ifndef SOFTNIC_SCOREBOARD_H
#define SOFTNIC_SCOREBOARD_H
#include <stdbool.h>
#include <stdint.h>

/* FIELDS */
typedef struct {
    int64_t pipe;
    int64_t sacked;
    int64_t lost;
    int64_t highest;
    int64_t delivered;
    double delivered_at;
    double first_sent_at;
    int64_t app_limited_until;
} sn_scoreboard;
/* END OF FIELDS */

#endif
