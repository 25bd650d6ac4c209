/* The tables of shuffles.h, computed by the preprocessor; those of vectors from SN_SIZE and SN_END_i of bursts.h. */
#include "codecs/shuffles.h"

#include "codecs/bursts.h"

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

/* The bits that are set below bit `i`. */
#define SET(t, i) ((t) >> (i) & 1)
#define BELOW_2(t) (SET(t, 0) + SET(t, 1))
#define BELOW_4(t) (BELOW_2(t) + BELOW_2((t) >> 2))
#define BELOW(t, i) (BELOW_4((t) & ((1 << (i)) - 1)) + BELOW_4(((t) & ((1 << (i)) - 1)) >> 4))

/* The set bit that has `n` set ones below it. */
#define IS_NTH(t, n, i) (SET(t, i) && BELOW(t, i) == (n))
#define NTH(t, n) \
    (IS_NTH(t, n, 0)   ? 0 \
     : IS_NTH(t, n, 1) ? 1 \
     : IS_NTH(t, n, 2) ? 2 \
     : IS_NTH(t, n, 3) ? 3 \
     : IS_NTH(t, n, 4) ? 4 \
     : IS_NTH(t, n, 5) ? 5 \
     : IS_NTH(t, n, 6) ? 6 \
     : IS_NTH(t, n, 7) ? 7 \
                       : 128)
#define COMPACT_BYTES(t) \
    {NTH(t, 0), NTH(t, 1), NTH(t, 2), NTH(t, 3), NTH(t, 4), NTH(t, 5), NTH(t, 6), NTH(t, 7)}

#define PLACE(t, i) (SET(t, i) ? BELOW(t, i) : 128)
#define EXPAND_BYTES(t) \
    {PLACE(t, 0), PLACE(t, 1), PLACE(t, 2), PLACE(t, 3), PLACE(t, 4), PLACE(t, 5), PLACE(t, 6), PLACE(t, 7)}

const uint8_t sn_compact_bytes[256][8] = ALL(COMPACT_BYTES);
const uint8_t sn_expand_bytes[256][8] = ALL(EXPAND_BYTES);
