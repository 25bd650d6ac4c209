/* The functions that each codec's file provides to codecs.c. The signatures are those of codecs.h without the codec
   number. */
#ifndef SOFTNIC_KERNELS_H
#define SOFTNIC_KERNELS_H
#include <stddef.h>
#include <stdint.h>

#include "codecs/codecs.h"

/* Whether the compiler can build for AVX2 and AVX-512 in a library that does not require them. SN_EMULATED_AVX512 names
   a header with portable versions of these intrinsics: with it the AVX-512 kernels run, slowly, on every CPU. */
#if defined(__x86_64__) && defined(__GNUC__)
#define SN_HAVE_AVX2
#define SN_HAVE_AVX512
#define SN_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt,f16c")))
#endif
#ifdef SN_EMULATED_AVX512
#define SN_HAVE_AVX512
#undef SN_TARGET_AVX512
#define SN_TARGET_AVX512
#endif

/* Every AArch64 CPU has NEON. */
#if defined(__aarch64__) && defined(__GNUC__)
#define SN_HAVE_NEON
#endif

typedef int sn_tag_counter(const uint8_t *body, size_t length, size_t count, uint64_t *counts);
typedef size_t sn_sizer(int parameter, size_t count);

/* One implementation of a codec. */
typedef struct {
    sn_encoder *encode;
    sn_decoder *decode;
    sn_roundtripper *roundtrip;
} sn_kernels;

/* One codec: name, range of parameters, kernels. */
typedef struct {
    const char *name;
    int lowest;
    int highest;
    int step; /* parameters are this far from each other */
    int blocks; /* words that are encoded together, at least SN_CODING_BLOCK_WORDS; 0: each word alone */
    sn_sizer *bound; /* maximum bytes of `count` words */
    sn_sizer *least; /* minimum bytes of `count` words */
    sn_tag_counter *tags; /* NULL for codecs without vectors of 0, 8, 16, 32 bits */
    const char *const *parameter_names; /* of the parameters from `lowest` on; NULL: their numbers */
    sn_kernels kernels[SN_SIMD_NUMBERS]; /* NULL: those of another implementation serve (kernels_of) */
} sn_codec;

#define SN_KERNELS_OF(codec, suffix) \
    sn_encoder sn_##codec##_encode##suffix; \
    sn_decoder sn_##codec##_decode##suffix; \
    sn_roundtripper sn_##codec##_roundtrip##suffix
#define SN_KERNELS(suffix) \
    SN_KERNELS_OF(inceptionn, suffix); \
    SN_KERNELS_OF(bounded, suffix); \
    SN_KERNELS_OF(bfp, suffix); \
    SN_KERNELS_OF(truncate, suffix); \
    SN_KERNELS_OF(rht, suffix); \
    SN_KERNELS_OF(mx, suffix)

SN_KERNELS_OF(raw, );
SN_KERNELS_OF(exact, );
SN_KERNELS();
sn_tag_counter sn_raw_tags, sn_inceptionn_tags, sn_bounded_tags;
#ifdef SN_HAVE_AVX2
SN_KERNELS(_avx2);
sn_encoder sn_exact_encode_avx2;
sn_decoder sn_exact_decode_avx2;
#endif
#ifdef SN_HAVE_AVX512
SN_KERNELS(_avx512);
sn_encoder sn_exact_encode_avx512;
sn_decoder sn_exact_decode_avx512;
#endif
#ifdef SN_HAVE_NEON
SN_KERNELS(_neon);
#endif
sn_sizer sn_raw_size, sn_inceptionn_bound, sn_inceptionn_least, sn_bounded_bound, sn_bounded_least,
    sn_bfp_bound, sn_bfp_least, sn_truncate_size, sn_rht_bound, sn_rht_least,
    sn_exact_bound, sn_exact_least, sn_mx_size;

#endif
