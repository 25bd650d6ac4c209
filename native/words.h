/* Unaligned loads and stores. Words on the wire are little-endian, headers big-endian. */
#ifndef SOFTNIC_WORDS_H
#define SOFTNIC_WORDS_H
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "softnic needs a little-endian machine"
#endif

/* For functions with a function argument: inlined, so that the argument is too. */
#if defined(__GNUC__)
#define SN_INLINE inline __attribute__((always_inline))
#else
#define SN_INLINE inline
#endif

/* Goes before a loop over the lanes of one burst: GCC unrolls so short a loop before vectorising it, which costs
   decoders half their speed. */
#if defined(__GNUC__) && !defined(__clang__)
#define SN_VECTORISE _Pragma("GCC unroll 1")
#else
#define SN_VECTORISE
#endif

/* Goes before a loop whose iterations are independent: the output is an operand, or does not overlap any. */
#if defined(__clang__)
#define SN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define SN_INDEPENDENT _Pragma("GCC ivdep")
#else
#define SN_INDEPENDENT
#endif

static inline uint32_t sn_load32(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline uint16_t sn_load16(const uint8_t *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline uint64_t sn_load64(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline void sn_store16(uint8_t *p, uint16_t value) { memcpy(p, &value, sizeof value); }
static inline void sn_store32(uint8_t *p, uint32_t value) { memcpy(p, &value, sizeof value); }
static inline void sn_store64(uint8_t *p, uint64_t value) { memcpy(p, &value, sizeof value); }

static inline uint16_t sn_load16be(const uint8_t *p) { return __builtin_bswap16(sn_load16(p)); }
static inline uint32_t sn_load32be(const uint8_t *p) { return __builtin_bswap32(sn_load32(p)); }
static inline void sn_store16be(uint8_t *p, uint16_t value) { sn_store16(p, __builtin_bswap16(value)); }
static inline void sn_store32be(uint8_t *p, uint32_t value) { sn_store32(p, __builtin_bswap32(value)); }

/* Returns all ones if the condition holds, else 0. Kernels select with masks: compilers turn `?:` around float
   arithmetic into branches, and do not vectorise those. */
static inline uint32_t sn_mask(int condition) { return 0u - (uint32_t)condition; }

/* Converts a bit pattern to the binary32 number, and back. */
static inline float sn_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t sn_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#endif
