/* The internet checksum (RFC 1071), alone and with a copy. Sums are of little-endian words; RFC 1071's byte-order
   independence allows the folded sum to be stored as it is. A sum of fewer than 2^32 words cannot overflow. */
#ifndef SOFTNIC_CHECKSUM_H
#define SOFTNIC_CHECKSUM_H
#include "words.h"
#include <stddef.h>

/* Sums the bytes behind the last whole 32-bit word. */
static inline uint64_t sn_sum_rest(const uint8_t *data, size_t length)
{
    uint64_t sum = 0;
    if (length & 2) {
        sum += sn_load16(data);
        data += 2;
    }
    return length & 1 ? sum + *data : sum;
}

static inline uint64_t sn_sum(const uint8_t *data, size_t length)
{
    uint64_t sum = 0;
    size_t words = length / 4;
    for (size_t i = 0; i < words; i++) sum += sn_load32(data + 4 * i);
    return sum + sn_sum_rest(data + 4 * words, length & 3);
}

static inline uint64_t sn_copy_sum(uint8_t *restrict out, const uint8_t *restrict data, size_t length)
{
    uint64_t sum = 0;
    size_t words = length / 4;
    for (size_t i = 0; i < words; i++) {
        uint32_t word = sn_load32(data + 4 * i);
        sn_store32(out + 4 * i, word);
        sum += word;
    }
    memcpy(out + 4 * words, data + 4 * words, length & 3);
    return sum + sn_sum_rest(out + 4 * words, length & 3); /* of the copy, even if `data` changes meanwhile */
}

/* A header field as an addend of such a sum. */
static inline uint64_t sn_sum_field16(uint32_t value) { return __builtin_bswap16((uint16_t)value); }

/* Folds to 16 bits, not complemented; sn_store16 stores it in network order. */
static inline uint16_t sn_fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

#endif
