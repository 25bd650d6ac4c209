/* Runs the library's kernels for a program elsewhere (machine.py): requests come in on standard input, answers go out
   on standard output, one after the other, in this machine's byte order. Data ends at a page that nobody may touch,
   so a kernel that reads or writes one byte too far ends the program. */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "codecs/codecs.h"
#include "codecs/combine.h"
#include "codecs/reduce.h"

enum { DEFAULT, ENCODE, DECODE, DECODE_PART, ROUNDTRIP, REDUCE, DECODE_COMBINE, COMBINE_ENCODE, COMBINE_ROUNDTRIP };

typedef struct {
    uint32_t call, simd;
    int32_t codec, parameter, operation, type;
    uint64_t first;    /* words before the first cut */
    uint64_t size_out; /* bytes there are for the answer */
    uint64_t size[2];  /* bytes of the operands, which follow */
    uint64_t in_place; /* 1: the answer takes the place of the first operand */
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

static answer run(const request *asked, const uint8_t *left, const uint8_t *right, uint8_t *out)
{
    const int codec = asked->codec, parameter = asked->parameter, operation = asked->operation;
    const size_t size = asked->size[0], room = asked->size_out;
    size_t consumed = 0;
    answer given = {0, 0, room};
    switch (asked->call) {
    case ENCODE:
        given.size = sn_encode(codec, parameter, left, size / 4, asked->first, out, room, &consumed);
        break;
    case DECODE:
        given.result = sn_decode(codec, parameter, left, size, out, room / 4);
        break;
    case DECODE_PART:
        given.result = sn_decode_part(codec, parameter, left, size, out, room / 4);
        break;
    case ROUNDTRIP:
        sn_roundtrip(codec, parameter, left, size / 4, out);
        break;
    case REDUCE:
        given.result = sn_reduce(operation, asked->type, left, right, size / sn_type_size(asked->type), out);
        break;
    case DECODE_COMBINE:
        given.result = sn_decode_combine(codec, parameter, left, size, operation, right, out, room / 4);
        break;
    case COMBINE_ENCODE:
        given.size = sn_combine_encode(codec, parameter, operation, left, right, size / 4, asked->first, out, room,
                                       &consumed);
        break;
    case COMBINE_ROUNDTRIP:
        given.result = sn_combine_roundtrip(codec, parameter, operation, left, right, size / 4, out);
        break;
    default:
        fail("unknown call");
    }
    given.consumed = consumed;
    if (given.size > room)
        fail("more written than there was room for");
    return given;
}

/* Reads an operand to where it ends at its fence. */
static uint8_t *read_before(uint8_t *fence, uint64_t size)
{
    if (size > MEMORY)
        fail("too much data");
    if (size && fread(fence - size, size, 1, stdin) != 1)
        fail("request cut short");
    return fence - size;
}

int main(void)
{
    uint8_t *const left_fence = fenced(), *const right_fence = fenced(), *const out_fence = fenced();
    const char *const by_default = sn_simd_name(sn_simd());
    request asked;
    while (fread(&asked, sizeof asked, 1, stdin) == 1) {
        answer given = {0, 0, strlen(by_default)};
        const uint8_t *data = (const uint8_t *)by_default;
        if (asked.call != DEFAULT) {
            uint8_t *const left = read_before(left_fence, asked.size[0]);
            const uint8_t *const right = read_before(right_fence, asked.size[1]);
            if (asked.size_out > (asked.in_place ? asked.size[0] : MEMORY))
                fail("too much data");
            if (sn_simd_select((int)asked.simd))
                fail("no such implementation here");
            uint8_t *const out = asked.in_place ? left : out_fence - asked.size_out;
            given = run(&asked, left, right, out);
            data = out;
        }
        if (fwrite(&given, sizeof given, 1, stdout) != 1 || (given.size && fwrite(data, given.size, 1, stdout) != 1) ||
            fflush(stdout))
            fail("nobody reads");
    }
    return 0;
}
