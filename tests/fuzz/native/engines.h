/* The engines of native/rtl, simulated, for targets that hold every implementation against the reference: they are one
   (SN_RTL) where SOFTNIC_FUZZ_ENGINES names their library, as `python -m tests.fuzz --rtl` does. */
#ifndef SOFTNIC_FUZZ_ENGINES_H
#define SOFTNIC_FUZZ_ENGINES_H
#include <dlfcn.h>

#include "codecs/codecs.h"
#include "fuzz.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);

static void *engine(void *library, const char *codec, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "rtl_%s_%s", codec, what);
    return dlsym(library, name);
}

/* libFuzzer calls it once, before the first input. */
int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    const char *path = getenv("SOFTNIC_FUZZ_ENGINES");
    if (!path)
        return 0;
    void *library = dlopen(path, RTLD_NOW);
    CHECK(library != NULL);
    int registered = 0;
    for (int codec = 0; codec <= SN_LAST_CODEC; codec++) {
        int lowest, highest;
        const char *name = sn_codec_describe(codec, &lowest, &highest);
        const int *parameters = name ? engine(library, name, "parameters") : NULL;
        if (!parameters)
            continue;
        CHECK(sn_rtl_register(codec, parameters[0], parameters[1], (sn_encoder *)engine(library, name, "encode"),
                              (sn_decoder *)engine(library, name, "decode"),
                              (sn_roundtripper *)engine(library, name, "roundtrip")) == 0);
        registered++;
    }
    CHECK(registered > 0);
    return 0;
}

#endif
