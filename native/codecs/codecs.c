/* The table of codecs and the calls dispatched through it. A new codec is one file and one line here; SIMD kernels are
   files of their own and entries in that line. The engines of native/rtl are in a library of their own, and are entered
   at run time. */
#include "codecs/codecs.h"

#include <stdatomic.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

#include "codecs/kernels.h"
#include "codecs/mx.h"
#include "words.h"

#ifdef SN_HAVE_AVX2
#define AVX2(codec) [SN_AVX2] = {sn_##codec##_encode_avx2, sn_##codec##_decode_avx2, sn_##codec##_roundtrip_avx2}
#else
#define AVX2(codec) [SN_AVX2] = {NULL, NULL, NULL}
#endif
#ifdef SN_HAVE_AVX512
#define AVX512(codec) \
    [SN_AVX512] = {sn_##codec##_encode_avx512, sn_##codec##_decode_avx512, sn_##codec##_roundtrip_avx512}
#else
#define AVX512(codec) [SN_AVX512] = {NULL, NULL, NULL}
#endif
#ifdef SN_HAVE_NEON
#define NEON(codec) [SN_NEON] = {sn_##codec##_encode_neon, sn_##codec##_decode_neon, sn_##codec##_roundtrip_neon}
#else
#define NEON(codec) [SN_NEON] = {NULL, NULL, NULL}
#endif
/* An exact round trip is a copy. */
#ifdef SN_HAVE_AVX2
#define EXACT_AVX2 [SN_AVX2] = {sn_exact_encode_avx2, sn_exact_decode_avx2, sn_exact_roundtrip}
#else
#define EXACT_AVX2 [SN_AVX2] = {NULL, NULL, NULL}
#endif
#ifdef SN_HAVE_AVX512
#define EXACT_AVX512 [SN_AVX512] = {sn_exact_encode_avx512, sn_exact_decode_avx512, sn_exact_roundtrip}
#else
#define EXACT_AVX512 [SN_AVX512] = {NULL, NULL, NULL}
#endif
#define SCALAR(codec) [SN_SCALAR] = {sn_##codec##_encode, sn_##codec##_decode, sn_##codec##_roundtrip}

static const char *const MX_ELEMENTS[] = {"e4m3", "e5m2", "e2m3", "e2m1"};

static sn_codec CODECS[] = {
    [SN_RAW] = {"raw", 0, 0, 1, 0, sn_raw_size, sn_raw_size, sn_raw_tags, NULL, {SCALAR(raw)}},
    [SN_INCEPTIONN] = {"inceptionn", 1, 23, 1, 0, sn_inceptionn_bound, sn_inceptionn_least, sn_inceptionn_tags, NULL,
                       {SCALAR(inceptionn), AVX2(inceptionn), AVX512(inceptionn), NEON(inceptionn)}},
    [SN_BOUNDED] = {"bounded", 1, 23, 1, 0, sn_bounded_bound, sn_bounded_least, sn_bounded_tags, NULL,
                    {SCALAR(bounded), AVX2(bounded), AVX512(bounded), NEON(bounded)}},
    [SN_BFP] = {"bfp", 3, 15, 1, SN_CODING_BLOCK_WORDS, sn_bfp_bound, sn_bfp_least, NULL, NULL,
                {SCALAR(bfp), AVX2(bfp), AVX512(bfp), NEON(bfp)}},
    [SN_TRUNCATE] = {"truncate", 8, 32, 1, 0, sn_truncate_size, sn_truncate_size, NULL, NULL,
                     {SCALAR(truncate), AVX2(truncate), AVX512(truncate), NEON(truncate)}},
    [SN_RHT] = {"rht", 3, 6, 1, SN_LONGEST_BLOCK_WORDS, sn_rht_bound, sn_rht_least, NULL, NULL,
                {SCALAR(rht), AVX2(rht), AVX512(rht), NEON(rht)}},
    [SN_EXACT] = {"exact", 16, 32, 16, SN_LONGEST_BLOCK_WORDS, sn_exact_bound, sn_exact_least, NULL, NULL,
                  {SCALAR(exact), EXACT_AVX2, EXACT_AVX512}},
    [SN_MX] = {"mx", SN_MX_E4M3, SN_MX_E2M1, 1, SN_MX_BLOCK_WORDS, sn_mx_size, sn_mx_size, NULL, MX_ELEMENTS,
               {SCALAR(mx), AVX2(mx), AVX512(mx), NEON(mx)}},
};

static const int COUNT = sizeof CODECS / sizeof CODECS[0];

/* Returns the codec, or NULL if it does not exist or does not accept the parameter. */
static const sn_codec *find(int codec, int parameter)
{
    if (codec < 0 || codec >= COUNT || !CODECS[codec].name)
        return NULL;
    const sn_codec *const found = &CODECS[codec];
    return parameter >= found->lowest && parameter <= found->highest && (parameter - found->lowest) % found->step == 0
               ? found
               : NULL;
}

static const char *const SIMD_NAMES[SN_SIMD_NUMBERS] = {[SN_SCALAR] = "scalar", [SN_AVX2] = "avx2",
                                                     [SN_AVX512] = "avx512", [SN_NEON] = "neon",
                                                     [SN_RTL] = "rtl"};

static atomic_int selected = SN_SCALAR;

const char *sn_simd_name(int simd)
{
    return simd >= 0 && simd < SN_SIMD_NUMBERS ? SIMD_NAMES[simd] : NULL;
}

#ifdef SN_HAVE_AVX2
/* Float16 is converted by F16C, which some compilers' __builtin_cpu_supports does not know. Of the CPUs with AVX2, all
   of AMD and Intel have both. */
static int has_avx2(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C);
}
#endif

#if defined(SN_EMULATED_AVX512)
static int has_avx512(void)
{
    return 1;
}
#elif defined(SN_HAVE_AVX512)
/* VBMI2 came with Ice Lake and Zen 4; CPUs with AVX-512 but without it use the AVX2 kernels. */
static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("popcnt");
}
#endif

/* One bit per implementation. Determined once, because cpuid is slow in a virtual machine. */
static unsigned available = 1u << SN_SCALAR;

int sn_simd_available(int simd)
{
    return simd >= 0 && simd < SN_SIMD_NUMBERS && available >> simd & 1;
}

int sn_simd(void)
{
    return atomic_load_explicit(&selected, memory_order_relaxed);
}

int sn_simd_select(int simd)
{
    if (!sn_simd_available(simd))
        return -1;
    atomic_store_explicit(&selected, simd, memory_order_relaxed);
    return 0;
}

#ifdef __GNUC__
static int processor_has(int simd)
{
#ifdef SN_HAVE_AVX2
    __builtin_cpu_init();
    if (simd == SN_AVX2)
        return has_avx2();
#endif
#ifdef SN_HAVE_AVX512
    if (simd == SN_AVX512)
        return has_avx512();
#endif
#ifdef SN_HAVE_NEON
    if (simd == SN_NEON)
        return 1;
#endif
    return simd == SN_SCALAR;
}

__attribute__((constructor))
static void select_quickest(void)
{
    for (int simd = SN_SCALAR; simd < SN_SIMD_NUMBERS; simd++)
        if (processor_has(simd)) {
            available |= 1u << simd;
            sn_simd_select(simd);
        }
}
#endif

/* Which implementation serves where one has no kernels of a codec. */
static const int INSTEAD[SN_SIMD_NUMBERS] = {[SN_AVX2] = SN_SCALAR, [SN_AVX512] = SN_AVX2, [SN_NEON] = SN_SCALAR,
                                             [SN_RTL] = SN_SCALAR};

/* The parameters that a codec's engines take. */
static struct {
    int lowest, highest;
} RTL_PARAMETERS[sizeof CODECS / sizeof CODECS[0]];

/* Returns 1 if an implementation has kernels of a codec with this parameter. */
static int has_kernels(const sn_codec *codec, int parameter, int simd)
{
    const ptrdiff_t number = codec - CODECS;
    return codec->kernels[simd].encode && (simd != SN_RTL || (parameter >= RTL_PARAMETERS[number].lowest &&
                                                              parameter <= RTL_PARAMETERS[number].highest));
}

static const sn_kernels *kernels_of(const sn_codec *codec, int parameter)
{
    int simd = sn_simd();
    while (!has_kernels(codec, parameter, simd))
        simd = INSTEAD[simd];
    return &codec->kernels[simd];
}

int sn_rtl_register(int codec, int lowest, int highest, sn_encoder *encode, sn_decoder *decode,
                    sn_roundtripper *roundtrip)
{
    if (codec < 0 || codec >= COUNT || !CODECS[codec].name)
        return -1;
    CODECS[codec].kernels[SN_RTL] = (sn_kernels){encode, decode, roundtrip};
    RTL_PARAMETERS[codec].lowest = lowest;
    RTL_PARAMETERS[codec].highest = highest;
    available |= 1u << SN_RTL;
    return 0;
}

const char *sn_codec_describe(int codec, int *lowest, int *highest)
{
    if (codec < 0 || codec >= COUNT || !CODECS[codec].name)
        return NULL;
    *lowest = CODECS[codec].lowest;
    *highest = CODECS[codec].highest;
    return CODECS[codec].name;
}

const char *sn_codec_parameter_name(int codec, int parameter)
{
    const sn_codec *const found = find(codec, parameter);
    return found && found->parameter_names ? found->parameter_names[parameter - found->lowest] : NULL;
}

int sn_codec_has_blocks(int codec)
{
    return codec >= 0 && codec < COUNT && CODECS[codec].blocks > 0;
}

int sn_codec_block_words(int codec)
{
    return sn_codec_has_blocks(codec) ? CODECS[codec].blocks : SN_CODING_BLOCK_WORDS;
}

int sn_codec_has_tags(int codec)
{
    return codec >= 0 && codec < COUNT && CODECS[codec].tags;
}

int sn_codec_valid(int codec, int parameter)
{
    return find(codec, parameter) != NULL;
}

size_t sn_encoded_bound(int codec, int parameter, size_t count)
{
    const sn_codec *const found = find(codec, parameter);
    return found ? found->bound(parameter, count) : 0;
}

size_t sn_encoded_least(int codec, int parameter, size_t count)
{
    const sn_codec *const found = find(codec, parameter);
    return found ? found->least(parameter, count) : 0;
}

size_t sn_encode(int codec, int parameter, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                 size_t capacity, size_t *consumed)
{
    const sn_codec *const found = find(codec, parameter);
    *consumed = 0;
    if (!found)
        return 0;
    if (first < (size_t)found->blocks && count > first)
        count = first;
    return kernels_of(found, parameter)->encode(parameter, words, count, first, out, capacity, consumed);
}

int sn_decode(int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    return sn_decode_part(codec, parameter, body, length, words, count) == (ptrdiff_t)length ? 0 : -1;
}

ptrdiff_t sn_decode_part(int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    const sn_codec *const found = find(codec, parameter);
    if (!found || length < found->least(parameter, count))
        return -1;
    return kernels_of(found, parameter)->decode(parameter, body, length, words, count);
}

void sn_roundtrip(int codec, int parameter, const uint8_t *words, size_t count, uint8_t *out)
{
    const sn_codec *const found = find(codec, parameter);
    if (found)
        kernels_of(found, parameter)->roundtrip(parameter, words, count, out);
}

int sn_tag_counts(int codec, int parameter, const uint8_t *body, size_t length, size_t count, uint64_t *counts)
{
    const sn_codec *const found = find(codec, parameter);
    memset(counts, 0, 4 * sizeof *counts);
    return found && found->tags && length >= found->least(parameter, count) ? found->tags(body, length, count, counts)
                                                                             : -1;
}
