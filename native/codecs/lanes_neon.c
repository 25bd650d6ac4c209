/* The tables of lanes_neon.h, computed by the preprocessor. */
#include "codecs/kernels.h"

#ifdef SN_HAVE_NEON
#include "codecs/lanes_neon.h"

enum { NONE = 128 };

#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

/* The byte of eight lanes in which bit `bit` of their codes of `w` bits is. */
#define LANE_BYTE(w, bit) (4 * ((bit) / (w)) + (bit) % (w) / 8)

/* Bits from `bit` on that are neighbours in a byte of its lane, and how far below them that byte ends. */
#define BELOW(w, bit) ((bit) % (w) % 8)
#define RUN(w, bit) SMALLER(8 - BELOW(w, bit), (w) - (bit) % (w))

/* Where the three runs begin that byte j is made of, the last ones behind its end if it has fewer. */
#define BIT_1(w, j) (8 * (j))
#define BIT_2(w, j) (BIT_1(w, j) + RUN(w, BIT_1(w, j)))
#define BIT_3(w, j) (BIT_2(w, j) + RUN(w, BIT_2(w, j)))
#define RUN_FROM(w, j, bit) ((j) < (w) && (bit) < 8 * (j) + 8 ? LANE_BYTE(w, bit) : NONE)
#define RUN_UP(w, j, bit) ((bit) < 8 * (j) + 8 ? (bit) - 8 * (j) - BELOW(w, bit) : 0)

#define PACK_FROM_1(w, j) RUN_FROM(w, j, BIT_1(w, j))
#define PACK_FROM_2(w, j) RUN_FROM(w, j, BIT_2(w, j))
#define PACK_FROM_3(w, j) RUN_FROM(w, j, BIT_3(w, j))
#define PACK_UP_1(w, j) RUN_UP(w, j, BIT_1(w, j))
#define PACK_UP_2(w, j) RUN_UP(w, j, BIT_2(w, j))
#define PACK_UP_3(w, j) RUN_UP(w, j, BIT_3(w, j))

/* Where byte j of eight lanes begins in their group, in bits. It ends in the next byte, or with this one. */
#define LANE_BIT(w, j) ((j) / 4 * (w) + (j) % 4 * 8)
#define UNPACK_FROM_1(w, j) (LANE_BIT(w, j) / 8)
#define UNPACK_FROM_2(w, j) (LANE_BIT(w, j) / 8 + 1)
#define UNPACK_UP_1(w, j) (-(LANE_BIT(w, j) % 8))
#define UNPACK_UP_2(w, j) (8 - LANE_BIT(w, j) % 8)

/* Codes of whole bytes: at the top of their lanes, so their bytes are the lane's last ones. */
#define PACK_WHOLE(n, j) ((j) < 4 * (n) ? (j) / (n) * 4 + 4 - (n) + (j) % (n) : NONE)
#define UNPACK_WHOLE(n, j) ((j) % 4 >= 4 - (n) ? (j) / 4 * (n) + (j) % 4 - (4 - (n)) : NONE)

#define FOUR(entry, w, j) entry(w, j), entry(w, (j) + 1), entry(w, (j) + 2), entry(w, (j) + 3)
#define SIXTEEN(entry, w, j) \
    FOUR(entry, w, j), FOUR(entry, w, (j) + 4), FOUR(entry, w, (j) + 8), FOUR(entry, w, (j) + 12)
#define MOVES(from, up, w) \
    {{SIXTEEN(from, w, 0), SIXTEEN(from, w, 16)}, {SIXTEEN(up, w, 0), SIXTEEN(up, w, 16)}}
#define PACKING(w) \
    {MOVES(PACK_FROM_1, PACK_UP_1, w), MOVES(PACK_FROM_2, PACK_UP_2, w), MOVES(PACK_FROM_3, PACK_UP_3, w)}
#define UNPACKING(w) {MOVES(UNPACK_FROM_1, UNPACK_UP_1, w), MOVES(UNPACK_FROM_2, UNPACK_UP_2, w)}

#define WIDTHS(entry) \
    {entry(4),  entry(5),  entry(6),  entry(7),  entry(8),  entry(9),  entry(10), entry(11), entry(12), entry(13), \
     entry(14), entry(15), entry(16), entry(17), entry(18), entry(19), entry(20), entry(21), entry(22), entry(23), \
     entry(24), entry(25), entry(26), entry(27), entry(28), entry(29), entry(30), entry(31), entry(32)}

const sn_moves sn_packing[SN_WIDTHS][3] = WIDTHS(PACKING);
const sn_moves sn_unpacking[SN_WIDTHS][2] = WIDTHS(UNPACKING);

#define WHOLE(entry) \
    {{SIXTEEN(entry, 1, 0)}, {SIXTEEN(entry, 2, 0)}, {SIXTEEN(entry, 3, 0)}, {SIXTEEN(entry, 4, 0)}}

const uint8_t sn_packing_bytes[4][16] = WHOLE(PACK_WHOLE);
const uint8_t sn_unpacking_bytes[4][16] = WHOLE(UNPACK_WHOLE);
#endif
