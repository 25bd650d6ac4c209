/* Runs the library's kernels for a program elsewhere (machine.py): requests come in on standard input, answers go out
   on standard output, one after the other, in this machine's byte order. Data ends at a page that nobody may touch,
   so a kernel that reads or writes one byte too far ends the program. */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "codecs.h"

enum { ENCODE = 0, DECODE = 1, ROUNDTRIP = 2, ROUNDTRIP_IN_PLACE = 3, NAME_OF_DEFAULT = 4 };

typedef struct {
    uint32_t operation, simd, codec;
    int32_t parameter;
    uint64_t first, size_out; /* words before the first cut; bytes there are for the answer */
    uint64_t size_in;         /* bytes that follow */
} request;

typedef struct {
    int64_t result;
    uint64_t consumed;
    uint64_t size; /* bytes that follow */
} answer;

enum { FENCE = 1 << 16, MEMORY = 1 << 24 };

static _Noreturn void fail(const char *why)
{
    fprintf(stderr, "kernels: %s\n", why);
    exit(1);
}

/* Where the fence of new memory is. */
static uint8_t *fenced(void)
{
    uint8_t *memory = mmap(NULL, MEMORY + FENCE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + MEMORY, FENCE, PROT_NONE))
        fail("no memory with a fence");
    return memory + MEMORY;
}

static answer run(const request *asked, const uint8_t *in, uint8_t *out)
{
    const size_t words = asked->size_in / 4;
    const int codec = (int)asked->codec, parameter = asked->parameter;
    size_t consumed = 0;
    answer given = {0, 0, asked->size_out};
    switch (asked->operation) {
    case ENCODE:
        given.size = sn_encode(codec, parameter, in, words, asked->first, out, asked->size_out, &consumed);
        given.consumed = consumed;
        break;
    case DECODE:
        given.result = sn_decode(codec, parameter, in, asked->size_in, out, asked->size_out / 4);
        break;
    case ROUNDTRIP:
        sn_roundtrip(codec, parameter, in, words, out);
        break;
    case ROUNDTRIP_IN_PLACE:
        memcpy(out, in, asked->size_in);
        sn_roundtrip(codec, parameter, out, words, out);
        break;
    default:
        fail("unknown operation");
    }
    if (given.size > asked->size_out)
        fail("more written than there was room for");
    return given;
}

int main(void)
{
    uint8_t *const in_fence = fenced(), *const out_fence = fenced();
    const char *const by_default = sn_simd_name(sn_simd());
    request asked;
    while (fread(&asked, sizeof asked, 1, stdin) == 1) {
        answer given = {0, 0, 0};
        const uint8_t *data = (const uint8_t *)by_default;
        if (asked.operation == NAME_OF_DEFAULT) {
            given.size = strlen(by_default);
        } else {
            if (asked.size_in > MEMORY || asked.size_out > MEMORY)
                fail("too much data");
            uint8_t *const in = in_fence - asked.size_in, *const out = out_fence - asked.size_out;
            if (asked.size_in && fread(in, asked.size_in, 1, stdin) != 1)
                fail("request cut short");
            if (sn_simd_select((int)asked.simd))
                fail("no such implementation here");
            given = run(&asked, in, out);
            data = out;
        }
        if (fwrite(&given, sizeof given, 1, stdout) != 1 || (given.size && fwrite(data, given.size, 1, stdout) != 1) ||
            fflush(stdout))
            fail("nobody reads");
    }
    return 0;
}
