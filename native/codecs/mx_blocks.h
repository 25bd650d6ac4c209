/* Codec 7 (mx.h) for one SIMD implementation: what the file that includes this defines beforehand is

       lanes, REGISTERS, LANES   a register of 32-bit lanes, how many make a block, the lanes of each
       row                       a byte for each word of a block
       SN_MX_INLINE

   and the functions of these that are called below. Blocks at the ends of the range of floats are left to mx.c.

   Added to a number of 2^23 to 2^24 units of its element, a power of two, a magnitude is rounded to whole units. */
enum { EXPONENTS = 255 << 23, SIGNS = -0x7fffffff - 1 };

typedef struct {
    lanes words[REGISTERS];
    lanes magnitudes[REGISTERS];
    uint32_t greatest; /* magnitude */
    lanes exponent;    /* of it, in place; a usual one for zeros */
} block;

SN_MX_INLINE block load_block(const uint8_t *words)
{
    block b;
    for (unsigned i = 0; i < REGISTERS; i++) {
        b.words[i] = load(words + 4 * LANES * i);
        b.magnitudes[i] = and(b.words[i], set(INT32_MAX));
    }
    const lanes most = greatest_of(b.magnitudes);
    b.greatest = first(most);
    b.exponent = max(and(most, set(EXPONENTS)), set(SN_MX_LEAST_USUAL << 23));
    return b;
}

/* What does not vary within a block: the exponent of the smallest normal element, in place, and what makes an origin
   (below) of an exponent and the magnitude of an element of this exponent. */
typedef struct {
    lanes least;
    lanes base;
} limits;

SN_MX_INLINE limits limits_of(sn_mx_format f, const block *b)
{
    const lanes least = sub(b->exponent, set(sn_mx_exponents(f) << 23));
    return (limits){least, sub(set((int32_t)(23 - f.mantissa) << 23), down(least, 23 - f.mantissa))};
}

/* Returns 2^23 units of each magnitude's element, and as many more as are below its exponent: added to the magnitude,
   the sum's low bits are the element. */
SN_MX_INLINE lanes origins_of(sn_mx_format f, lanes magnitudes, limits l)
{
    const lanes exponents = max(and(magnitudes, set(EXPONENTS)), l.least);
    return add(add(exponents, down(exponents, 23 - f.mantissa)), l.base);
}

SN_MX_INLINE void put(uint8_t *out, int parameter, const uint8_t *words)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const block b = load_block(words);
    if (!sn_mx_is_usual(b.greatest)) {
        sn_mx_put(out, parameter, words, SN_MX_BLOCK_WORDS);
        return;
    }
    const row tops = top_bytes(b.words); /* now: registers are few */
    const limits l = limits_of(f, &b);
    lanes sums[REGISTERS];
    for (unsigned i = 0; i < REGISTERS; i++)
        sums[i] = add_floats(b.magnitudes[i], origins_of(f, b.magnitudes[i], l));
    *out = sn_mx_scale(f, b.greatest);
    store_row(out + 1, f, elements_of(f, low_bytes(sums), tops));
}

SN_MX_INLINE void take(const uint8_t *in, int parameter, uint8_t *words)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const row elements = load_row(in + 1, f);
    if (are_products(f, *in, elements))
        store_products(words, f, elements, sn_mx_factor(f, *in));
    else
        sn_mx_take(in, parameter, words, SN_MX_BLOCK_WORDS);
}

SN_MX_INLINE void round_block(int parameter, const uint8_t *words, uint8_t *out)
{
    const sn_mx_format f = sn_mx_format_of(parameter);
    const block b = load_block(words);
    if (!sn_mx_is_usual(b.greatest)) {
        sn_mx_round(parameter, words, out, SN_MX_BLOCK_WORDS);
        return;
    }
    const uint32_t fraction = (f.most & ((1u << f.mantissa) - 1)) << (23 - f.mantissa);
    const limits l = limits_of(f, &b);
    const lanes most = or(b.exponent, set((int32_t)fraction));
    for (unsigned i = 0; i < REGISTERS; i++) {
        const lanes origins = origins_of(f, b.magnitudes[i], l);
        const lanes rounded = sub_floats(add_floats(b.magnitudes[i], origins), origins);
        store(out + 4 * LANES * i, or(min(rounded, most), and(b.words[i], set(SIGNS))));
    }
}
