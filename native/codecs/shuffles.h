/* Byte shuffles, one for each byte of tags or mask. */
#ifndef SOFTNIC_SHUFFLES_H
#define SOFTNIC_SHUFFLES_H
#include <stdint.h>

/* Between four 32-bit lanes and their vectors (bursts.h). A vector is at the top of its lane: 8 bits in byte 3, 16 bits in bytes 2 and 3. `sn_compact` moves four lanes'
   vectors next to each other, `sn_expand` separates them again. Entries are indices of source bytes; 128 makes a zero
   byte. */
extern const uint8_t sn_compact[256][16];
extern const uint8_t sn_expand[256][16];

/* Moves the bytes of eight whose bits are set next to each other, and separates them again. */
extern const uint8_t sn_compact_bytes[256][8];
extern const uint8_t sn_expand_bytes[256][8];

#endif
