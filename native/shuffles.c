/* The tables of shuffles.h, computed by the preprocessor from SN_SIZE and SN_END_i of bursts.h. */
#include "shuffles.h"

#include "bursts.h"

#define SN_END_4(t) (SN_END_3(t) + SN_SIZE(t, 3))

#define FOUR(entry, t) entry(t), entry((t) + 1), entry((t) + 2), entry((t) + 3)
#define SIXTEEN(entry, t) FOUR(entry, t), FOUR(entry, (t) + 4), FOUR(entry, (t) + 8), FOUR(entry, (t) + 12)
#define SIXTY_FOUR(entry, t) \
    SIXTEEN(entry, t), SIXTEEN(entry, (t) + 16), SIXTEEN(entry, (t) + 32), SIXTEEN(entry, (t) + 48)
#define ALL(entry) \
    {SIXTY_FOUR(entry, 0), SIXTY_FOUR(entry, 64), SIXTY_FOUR(entry, 128), SIXTY_FOUR(entry, 192)}

/* Byte i of the vectors belongs to the first lane whose vector ends behind it. */
#define COMPACTED(t, i) \
    ((i) < SN_END_1(t)   ? 4 - SN_END_1(t) + (i) \
     : (i) < SN_END_2(t) ? 8 - SN_END_2(t) + (i) \
     : (i) < SN_END_3(t) ? 12 - SN_END_3(t) + (i) \
     : (i) < SN_END_4(t) ? 16 - SN_END_4(t) + (i) \
                         : 128)
#define COMPACT_4(t, i) COMPACTED(t, i), COMPACTED(t, (i) + 1), COMPACTED(t, (i) + 2), COMPACTED(t, (i) + 3)
#define COMPACT(t) {COMPACT_4(t, 0), COMPACT_4(t, 4), COMPACT_4(t, 8), COMPACT_4(t, 12)}

/* The byte `back` bytes before the end of a vector of `size` bytes. */
#define EXPAND_BYTE(size, end, back) ((size) >= (back) ? (end) - (back) : 128)
#define EXPAND_LANE(size, end) \
    EXPAND_BYTE(size, end, 4), EXPAND_BYTE(size, end, 3), EXPAND_BYTE(size, end, 2), EXPAND_BYTE(size, end, 1)
#define EXPAND(t) \
    {EXPAND_LANE(SN_SIZE(t, 0), SN_END_1(t)), EXPAND_LANE(SN_SIZE(t, 1), SN_END_2(t)), \
     EXPAND_LANE(SN_SIZE(t, 2), SN_END_3(t)), EXPAND_LANE(SN_SIZE(t, 3), SN_END_4(t))}

const uint8_t sn_compact[256][16] = ALL(COMPACT);
const uint8_t sn_expand[256][16] = ALL(EXPAND);
