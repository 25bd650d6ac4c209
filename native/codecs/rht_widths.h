/* The kernels of codec 5 for one implementation, each width a copy of its own. The file that includes this defines `block`,
   a block's coefficients, and for blocks that are neither zeros nor sent as they are, with the scale as a float:

       load_coefficients   returns the bits of the largest magnitude; those of a NaN if any word is one
       put_codes           the 16 b bytes of coefficients; may touch those of the block's words
       take_codes          the words of 16 b bytes at `in`; may read as far as `end`
       round_codes         the words of the codes of coefficients, which may change */
SN_RHT_INLINE uint8_t *put(uint8_t *out, int b, const uint8_t *words)
{
    block x;
    const uint32_t greatest = load_coefficients(words, &x), scale = sn_rht_scale(greatest);
    if (greatest >= SN_RHT_HUGE_COEFFICIENT) {
        uint8_t copy[SN_RHT_BLOCK_BYTES]; /* an application may change the words meanwhile */
        memcpy(copy, words, sizeof copy);
        return sn_rht_put(out, b, copy, SN_RHT_BLOCK_WORDS);
    }
    sn_store16(out, (uint16_t)scale);
    out += SN_RHT_SCALE_BYTES;
    if (scale == SN_RHT_ZERO)
        return out;
    put_codes(out, b, &x, sn_float_of(scale << 16));
    return out + 16 * b;
}

/* Leaves scales that may overflow to rht.c. */
SN_RHT_INLINE const uint8_t *take(const uint8_t *in, const uint8_t *end, int b, uint8_t *words)
{
    const uint32_t scale = end - in < SN_RHT_SCALE_BYTES + 16 * b ? SN_RHT_ZERO : sn_load16(in);
    if (scale == SN_RHT_ZERO || scale >= SN_RHT_SAFE_SCALE)
        return sn_rht_take(in, end, b, words, SN_RHT_BLOCK_WORDS);
    take_codes(in + SN_RHT_SCALE_BYTES, end, b, sn_float_of(scale << 16), words);
    return in + SN_RHT_SCALE_BYTES + 16 * b;
}

SN_RHT_INLINE void round_words(int b, const uint8_t *words, uint8_t *out)
{
    block x;
    const uint32_t greatest = load_coefficients(words, &x), scale = sn_rht_scale(greatest);
    if (greatest >= SN_RHT_HUGE_COEFFICIENT || scale == SN_RHT_ZERO) {
        memmove(out, words, SN_RHT_BLOCK_BYTES);
        sn_rht_round(b, out, SN_RHT_BLOCK_WORDS);
        return;
    }
    round_codes(b, &x, sn_float_of(scale << 16), out);
}

#define SN_RHT_EACH(call) b == 3 ? call(3) : b == 4 ? call(4) : b == 5 ? call(5) : call(6)
#define SN_RHT_ENCODE(b) sn_rht_encode_blocks(put, b, words, count, out, capacity, consumed)
#define SN_RHT_DECODE(b) sn_rht_decode_blocks(take, b, body, length, words, count)
#define SN_RHT_ROUND(b) sn_rht_round_blocks(round_words, b, words, count, out)

SN_RHT_TARGET size_t SN_RHT_NAME(encode)(int b, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                         size_t capacity, size_t *consumed)
{
    (void)first;
    return SN_RHT_EACH(SN_RHT_ENCODE);
}

SN_RHT_TARGET ptrdiff_t SN_RHT_NAME(decode)(int b, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    return SN_RHT_EACH(SN_RHT_DECODE);
}

SN_RHT_TARGET void SN_RHT_NAME(roundtrip)(int b, const uint8_t *words, size_t count, uint8_t *out)
{
    SN_RHT_EACH(SN_RHT_ROUND);
}
