/* What the fuzz targets of native/ share: an input read piece by piece, buffers that end where the sanitizer looks, and
   checks. A target is one LLVMFuzzerTestOneInput; what it says an input means stands at its top. */
#ifndef SOFTNIC_FUZZ_H
#define SOFTNIC_FUZZ_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever the input was, this must hold. */
#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

/* The input. What is taken beyond its end is zeros. */
typedef struct {
    const uint8_t *data;
    size_t left;
} input;

static inline uint32_t take8(input *in)
{
    if (!in->left)
        return 0;
    in->left--;
    return *in->data++;
}

static inline uint32_t take16(input *in)
{
    const uint32_t low = take8(in);
    return low | take8(in) << 8;
}

static inline uint32_t take32(input *in)
{
    const uint32_t low = take16(in);
    return low | take16(in) << 16;
}

/* Memory of exactly this size: the first byte beyond it ends the run. */
static inline uint8_t *exactly(size_t size)
{
    uint8_t *memory = malloc(size);
    CHECK(memory || !size);
    return memory;
}

/* Up to `most` bytes of the input, in memory of their own; `*size` gets their number. */
static inline uint8_t *take_bytes(input *in, size_t most, size_t *size)
{
    *size = most < in->left ? most : in->left;
    uint8_t *copy = exactly(*size);
    memcpy(copy, in->data, *size);
    in->data += *size;
    in->left -= *size;
    return copy;
}

static inline int same(const uint8_t *one, const uint8_t *other, size_t size)
{
    return size == 0 || memcmp(one, other, size) == 0;
}

#endif
