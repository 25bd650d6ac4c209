/* Written and not yet acknowledged bytes of a stream (softnic/tcp/send_buffer.py says how they are kept). */
#ifndef SOFTNIC_SEND_BUFFER_H
#define SOFTNIC_SEND_BUFFER_H
#include <stdbool.h>
#include <stdint.h>

/* FIELDS */
typedef struct {
    int64_t capacity;
    int64_t origin;
    int64_t start;
    int64_t end;
    bool blocks;
    bool floats;
} sn_send_buffer;
/* END OF FIELDS */

#endif
