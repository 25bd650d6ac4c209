/* The kernels of codec 6 for one implementation, each width a copy of its own: made of its `put_whole`, and of its
   `take_whole`, which decodes a block of at most SN_EXACT_BOUND readable bytes and returns its end, or NULL if it is
   malformed. */
SN_EXACT_INLINE uint8_t *put(uint8_t *out, int bits, const uint8_t *words, unsigned count)
{
    if (count < SN_EXACT_BLOCK_WORDS)
        return sn_exact_put(out, bits, words, count);
    return put_whole(out, bits, words);
}

SN_EXACT_INLINE const uint8_t *take(const uint8_t *in, const uint8_t *end, int bits, uint8_t *words, unsigned count)
{
    const size_t left = (size_t)(end - in);
    if (count < SN_EXACT_BLOCK_WORDS || !left || *in == SN_EXACT_AS_IT_IS)
        return sn_exact_take(in, end, bits, words, count);
    if (left >= SN_EXACT_BOUND)
        return take_whole(in, bits, words);
    uint8_t copy[SN_EXACT_BOUND] = {0};
    memcpy(copy, in, left);
    const uint8_t *const next = take_whole(copy, bits, words);
    return next && next <= copy + left ? in + (next - copy) : NULL;
}

SN_EXACT_TARGET size_t SN_EXACT_NAME(encode)(int bits, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                             size_t capacity, size_t *consumed)
{
    (void)first;
    if (bits == 32)
        return sn_exact_encode_blocks(put, 32, words, count, out, capacity, consumed);
    return sn_exact_encode_blocks(put, 16, words, count, out, capacity, consumed);
}

SN_EXACT_TARGET ptrdiff_t SN_EXACT_NAME(decode)(int bits, const uint8_t *body, size_t length, uint8_t *words,
                                                size_t count)
{
    if (bits == 32)
        return sn_exact_decode_blocks(take, 32, body, length, words, count);
    return sn_exact_decode_blocks(take, 16, body, length, words, count);
}
