/* Byte shuffles between four 32-bit lanes and their vectors (bursts.h), one for each byte of tags. */
#ifndef SOFTNIC_SHUFFLES_H
#define SOFTNIC_SHUFFLES_H
#include <stdint.h>

/* A vector is at the top of its lane: 8 bits in byte 3, 16 bits in bytes 2 and 3. `sn_compact` moves four lanes'
   vectors next to each other, `sn_expand` separates them again. Entries are indices of source bytes; 128 makes a zero
   byte. */
extern const uint8_t sn_compact[256][16];
extern const uint8_t sn_expand[256][16];

#endif
