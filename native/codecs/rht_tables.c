/* The tables of codec 5 (rht.h), as docs/FORMAT.md defines them: levels of the Lloyd-Max quantiser of N(0, 1) divided by
   the largest, and the midpoints of neighbours divided likewise, both rounded once. */
#include "codecs/rht.h"

const float sn_rht_levels[SN_RHT_WIDTHS][SN_RHT_MOST_LEVELS] = {
    {0x1.d282cp-4f, 0x1.67be72p-2f, 0x1.3fbfa2p-1f, 0x1p+0f},
    {0x1.80e9fep-5f, 0x1.22d4d8p-3f, 0x1.ec3904p-3f, 0x1.612106p-2f, 0x1.d6c154p-2f, 0x1.2f2b92p-1f, 0x1.83aafp-1f,
     0x1p+0f},
    {0x1.4b125ap-6f, 0x1.f191c2p-5f, 0x1.a04396p-4f, 0x1.251fep-3f, 0x1.7bf252p-3f, 0x1.d542c4p-3f, 0x1.18eddap-2f,
     0x1.495c1ap-2f, 0x1.7c8e0ep-2f, 0x1.b35dbcp-2f, 0x1.eeff9ap-2f, 0x1.18a19ap-1f, 0x1.3e8d02p-1f, 0x1.6bee68p-1f,
     0x1.a68f36p-1f, 0x1p+0f},
    {0x1.24658cp-7f, 0x1.b6d012p-6f, 0x1.6e0a9cp-5f, 0x1.009d04p-4f, 0x1.4a985ep-4f, 0x1.9515a8p-4f, 0x1.e03498p-4f,
     0x1.160b62p-3f, 0x1.3c7002p-3f, 0x1.635b88p-3f, 0x1.8ae304p-3f, 0x1.b31da8p-3f, 0x1.dc253p-3f, 0x1.030b3ep-2f,
     0x1.188922p-2f, 0x1.2e9efep-2f, 0x1.45627ep-2f, 0x1.5ced02p-2f, 0x1.755cap-2f, 0x1.8ed584p-2f, 0x1.a983d6p-2f,
     0x1.c59e7p-2f, 0x1.e36accp-2f, 0x1.01a186p-1f, 0x1.12cfa8p-1f, 0x1.2592acp-1f, 0x1.3a61dp-1f, 0x1.51f274p-1f,
     0x1.6d6de4p-1f, 0x1.8ef36ap-1f, 0x1.bb1fecp-1f, 0x1p+0f},
};

#define THRESHOLDS_3 0x1.dc5f22p-3f, 0x1.f39edcp-2f, 0x1.9fdfdp-1f
#define THRESHOLDS_4 \
    0x1.830f58p-4f, 0x1.8786eep-3f, 0x1.2b9ec4p-2f, 0x1.9bf12ep-2f, 0x1.0d461ep-1f, 0x1.596b42p-1f, 0x1.c1d578p-1f
#define THRESHOLDS_5 \
    0x1.4b8d78p-5f, 0x1.4c863cp-4f, 0x1.f541aap-4f, 0x1.508918p-3f, 0x1.a89a8ap-3f, 0x1.01c79ep-2f, \
    0x1.3124fap-2f, 0x1.62f514p-2f, 0x1.97f5e4p-2f, 0x1.d12eaap-2f, 0x1.0810b4p-1f, 0x1.2b974ep-1f, \
    0x1.553db6p-1f, 0x1.893edp-1f, 0x1.d3479ap-1f
#define THRESHOLDS_6 \
    0x1.24816cp-6f, 0x1.24b952p-5f, 0x1.b7a252p-5f, 0x1.259ab2p-4f, 0x1.6fd704p-4f, 0x1.baa52p-4f, 0x1.0312d8p-3f, \
    0x1.293db2p-3f, 0x1.4fe5c6p-3f, 0x1.771f46p-3f, 0x1.9f0056p-3f, 0x1.c7a16cp-3f, 0x1.f11dd6p-3f, 0x1.0dca3p-2f, \
    0x1.23941p-2f, 0x1.3a00bep-2f, 0x1.5127cp-2f, 0x1.6924dp-2f, 0x1.821912p-2f, 0x1.9c2cacp-2f, 0x1.b79122p-2f, \
    0x1.d4849ep-2f, 0x1.f356ecp-2f, 0x1.0a3898p-1f, 0x1.1c312ap-1f, 0x1.2ffa3ep-1f, 0x1.462a22p-1f, \
    0x1.5fb02cp-1f, 0x1.7e30a6p-1f, 0x1.a509aap-1f, 0x1.dd8ff6p-1f

const float sn_rht_thresholds[SN_RHT_WIDTHS][SN_RHT_MOST_LEVELS] = {
    {THRESHOLDS_3},
    {THRESHOLDS_4},
    {THRESHOLDS_5},
    {THRESHOLDS_6},
};

/* The middle of ascending numbers, the middles of both halves, and so on. */
#define TREE_3(a, b, c) b, a, c
#define TREE_7(a, b, c, d, e, f, g) d, b, f, a, c, e, g
#define TREE_15(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o) h, d, l, b, f, j, n, a, c, e, g, i, k, m, o
#define TREE_31(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E) \
    p, h, x, d, l, t, B, b, f, j, n, r, v, z, D, a, c, e, g, i, k, m, o, q, s, u, w, y, A, C, E
#define TREE(of, thresholds) {0, of(thresholds)}

const float sn_rht_searches[SN_RHT_WIDTHS][SN_RHT_MOST_LEVELS] = {
    TREE(TREE_3, THRESHOLDS_3),
    TREE(TREE_7, THRESHOLDS_4),
    TREE(TREE_15, THRESHOLDS_5),
    TREE(TREE_31, THRESHOLDS_6),
};

/* Sixteen sign bits: those of the words whose bit is set in `bits`. */
#define BIT(bits, i) (((uint32_t)(bits) >> (i) & 1) << 31)
#define FLIP(bits) \
    BIT(bits, 0), BIT(bits, 1), BIT(bits, 2), BIT(bits, 3), BIT(bits, 4), BIT(bits, 5), BIT(bits, 6), BIT(bits, 7), \
        BIT(bits, 8), BIT(bits, 9), BIT(bits, 10), BIT(bits, 11), BIT(bits, 12), BIT(bits, 13), BIT(bits, 14), \
        BIT(bits, 15)

const uint32_t sn_rht_signs[SN_RHT_BLOCK_WORDS] = {
    FLIP(0xc834), FLIP(0x5ced), FLIP(0xc060), FLIP(0xf39c),
    FLIP(0x7c15), FLIP(0x7f4a), FLIP(0x79b9), FLIP(0x9e37),
};
