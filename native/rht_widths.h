/* The kernels of codec 5 for one implementation, each width a copy of its own: made of `put`, `take` and `round_words`
   of the file that includes this. */
#define SN_RHT_OF_WIDTH(b) \
    SN_RHT_INLINE uint8_t *put_##b(uint8_t *out, int width, const uint8_t *words) \
    { \
        (void)width; \
        return put(out, b, words); \
    } \
    SN_RHT_INLINE const uint8_t *take_##b(const uint8_t *in, const uint8_t *end, int width, uint8_t *words) \
    { \
        (void)width; \
        return take(in, end, b, words); \
    } \
    SN_RHT_INLINE void round_##b(int width, const uint8_t *words, uint8_t *out) \
    { \
        (void)width; \
        round_words(b, words, out); \
    }
SN_RHT_OF_WIDTH(3)
SN_RHT_OF_WIDTH(4)
SN_RHT_OF_WIDTH(5)
SN_RHT_OF_WIDTH(6)

#define SN_RHT_ENCODE(b) sn_rht_encode_blocks(put_##b, b, words, count, out, capacity, consumed)
#define SN_RHT_DECODE(b) sn_rht_decode_blocks(take_##b, b, body, length, words, count)
#define SN_RHT_ROUND(b) sn_rht_round_blocks(round_##b, b, words, count, out)

SN_RHT_TARGET size_t SN_RHT_NAME(encode)(int b, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                                         size_t capacity, size_t *consumed)
{
    (void)first;
    return b == 3   ? SN_RHT_ENCODE(3)
           : b == 4 ? SN_RHT_ENCODE(4)
           : b == 5 ? SN_RHT_ENCODE(5)
                    : SN_RHT_ENCODE(6);
}

SN_RHT_TARGET ptrdiff_t SN_RHT_NAME(decode)(int b, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    return b == 3   ? SN_RHT_DECODE(3)
           : b == 4 ? SN_RHT_DECODE(4)
           : b == 5 ? SN_RHT_DECODE(5)
                    : SN_RHT_DECODE(6);
}

SN_RHT_TARGET void SN_RHT_NAME(roundtrip)(int b, const uint8_t *words, size_t count, uint8_t *out)
{
    if (b == 3)
        SN_RHT_ROUND(3);
    else if (b == 4)
        SN_RHT_ROUND(4);
    else if (b == 5)
        SN_RHT_ROUND(5);
    else
        SN_RHT_ROUND(6);
}
