/* Splits arrays into parts that threads process in turn. */
#define _POSIX_C_SOURCE 200809L
#include "codecs/parallel.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "codecs/codecs.h"
#include "codecs/reduce.h"

/* Parts per thread: enough that the others have little left when one is delayed by a busy core or a hard part. */
enum { PARTS_A_THREAD = 4, MOST_PARTS = PARTS_A_THREAD * SN_MOST_THREADS };

/* Processes part `number` of what `context` describes. */
typedef void part_worker(void *context, unsigned number);

typedef struct {
    part_worker *work;
    void *context;
    unsigned parts;
    atomic_uint next;
} job;

/* Processes parts until all have been started. */
static void *take_parts(void *argument)
{
    job *const all = argument;
    for (unsigned number; (number = atomic_fetch_add(&all->next, 1)) < all->parts;)
        all->work(all->context, number);
    return NULL;
}

/* Processes parts 0 to `parts` - 1 in this thread and those it starts. New threads block all signals. */
static void share_out(part_worker *work, void *context, unsigned parts)
{
    const unsigned threads = (parts + PARTS_A_THREAD - 1) / PARTS_A_THREAD;
    job all = {work, context, parts, 0};
    pthread_t others[SN_MOST_THREADS];
    unsigned started = 0;
    if (threads > 1) {
        sigset_t every, before;
        sigfillset(&every);
        pthread_sigmask(SIG_SETMASK, &every, &before);
        while (started < threads - 1 && pthread_create(&others[started], NULL, take_parts, &all) == 0)
            started++;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    take_parts(&all);
    while (started)
        pthread_join(others[--started], NULL);
}

/* An array split into parts of `size` elements, a multiple of SN_PART_WORDS; the last may be shorter. */
typedef struct {
    size_t count;
    size_t size;
    unsigned parts;
} cut;

static cut cut_up(size_t count, unsigned threads)
{
    const size_t most = threads < 2 ? 1 : PARTS_A_THREAD * (threads < SN_MOST_THREADS ? threads : SN_MOST_THREADS);
    const size_t units = count / SN_PART_WORDS + (count % SN_PART_WORDS != 0);
    const size_t size = (units / most + (units % most != 0)) * SN_PART_WORDS;
    return (cut){count, size, size ? (unsigned)((count + size - 1) / size) : 1};
}

static size_t begin_of(cut cut, unsigned number) { return number * cut.size; }

static size_t size_of(cut cut, unsigned number)
{
    return number + 1 < cut.parts ? cut.size : cut.count - begin_of(cut, number);
}

typedef struct {
    cut cut;
    int codec;
    int parameter;
    const uint8_t *words;
    uint8_t *out;
    size_t used[MOST_PARTS];
} encoding;

/* Where a part's encoding can be written, whatever the size of those before. */
static uint8_t *place_of(const encoding *all, unsigned number)
{
    return all->out + sn_encoded_bound(all->codec, all->parameter, begin_of(all->cut, number));
}

static void encode_part(void *context, unsigned number)
{
    encoding *const all = context;
    const size_t size = size_of(all->cut, number);
    size_t consumed;
    all->used[number] = sn_encode(all->codec, all->parameter, all->words + 4 * begin_of(all->cut, number), size,
                                  (size_t)sn_codec_block_words(all->codec), place_of(all, number),
                                  sn_encoded_bound(all->codec, all->parameter, size), &consumed);
}

size_t sn_parallel_encode(unsigned threads, int codec, int parameter, const uint8_t *words, size_t count,
                          uint8_t *out)
{
    encoding all = {cut_up(count, threads), codec, parameter, words, out, {0}};
    share_out(encode_part, &all, all.cut.parts);
    size_t used = all.used[0];
    for (unsigned number = 1; number < all.cut.parts; number++) {
        memmove(out + used, place_of(&all, number), all.used[number]);
        used += all.used[number];
    }
    return used;
}

typedef struct {
    cut cut;
    int codec;
    int parameter;
    const uint8_t *body;
    size_t length;
    size_t block_words;
    size_t block_bytes; /* bytes per block, assuming that all have the same size */
    uint8_t *words;
    ptrdiff_t used[MOST_PARTS];
} decoding;

/* Where a part is assumed to begin. */
static size_t offset_of(const decoding *all, unsigned number)
{
    return begin_of(all->cut, number) / all->block_words * all->block_bytes;
}

static ptrdiff_t decode_from(const decoding *all, unsigned number, size_t offset, size_t count)
{
    return sn_decode_part(all->codec, all->parameter, all->body + offset, all->length - offset,
                          all->words + 4 * begin_of(all->cut, number), count);
}

static void decode_part(void *context, unsigned number)
{
    decoding *const all = context;
    all->used[number] = decode_from(all, number, offset_of(all, number), size_of(all->cut, number));
}

/* Returns the end of the parts that began where the threads assumed, and the number of these parts; -1 if one of them
   is malformed. */
static ptrdiff_t verified(const decoding *all, unsigned *parts)
{
    size_t end = 0;
    for (*parts = 0; *parts < all->cut.parts && offset_of(all, *parts) == end; ++*parts) {
        if (all->used[*parts] < 0)
            return -1;
        end += (size_t)all->used[*parts];
    }
    return (ptrdiff_t)end;
}

int sn_parallel_decode(unsigned threads, int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words,
                       size_t count)
{
    const size_t block = (size_t)sn_codec_block_words(codec), blocks = count / block;
    const size_t block_bytes = blocks ? length / blocks : 0;
    decoding all = {cut_up(count, threads), codec, parameter, body, length, block, block_bytes, words, {0}};
    /* Behind blocks of equal size, at most one is shorter. */
    if (all.cut.parts == 1 || length - blocks * block_bytes > 4 * block + 8)
        return sn_decode(codec, parameter, body, length, words, count);
    share_out(decode_part, &all, all.cut.parts);
    unsigned parts;
    const ptrdiff_t end = verified(&all, &parts);
    if (end < 0 || parts == all.cut.parts)
        return end == (ptrdiff_t)length ? 0 : -1;
    const ptrdiff_t rest = decode_from(&all, parts, (size_t)end, count - begin_of(all.cut, parts));
    return rest >= 0 && end + rest == (ptrdiff_t)length ? 0 : -1;
}

typedef struct {
    cut cut;
    int codec;
    int parameter;
    const uint8_t *words;
    uint8_t *out;
} rounding;

static void round_part(void *context, unsigned number)
{
    const rounding *const all = context;
    const size_t begin = 4 * begin_of(all->cut, number);
    sn_roundtrip(all->codec, all->parameter, all->words + begin, size_of(all->cut, number), all->out + begin);
}

void sn_parallel_roundtrip(unsigned threads, int codec, int parameter, const uint8_t *words, size_t count,
                           uint8_t *out)
{
    rounding all = {cut_up(count, threads), codec, parameter, words, out};
    share_out(round_part, &all, all.cut.parts);
}

typedef struct {
    cut cut;
    int operation;
    int type;
    const uint8_t *left;
    const uint8_t *right;
    uint8_t *out;
} reducing;

static void reduce_part(void *context, unsigned number)
{
    const reducing *const all = context;
    const size_t begin = sn_type_size(all->type) * begin_of(all->cut, number);
    sn_reduce(all->operation, all->type, all->left + begin, all->right + begin, size_of(all->cut, number),
              all->out + begin);
}

int sn_parallel_reduce(unsigned threads, int operation, int type, const uint8_t *left, const uint8_t *right,
                       size_t count, uint8_t *out)
{
    reducing all = {cut_up(count, threads), operation, type, left, right, out};
    if (sn_reduce(operation, type, left, right, 0, out)) /* unknown operation or type */
        return -1;
    share_out(reduce_part, &all, all.cut.parts);
    return 0;
}

typedef struct {
    cut cut; /* of bytes */
    const uint8_t *from;
    uint8_t *to;
} copying;

static void copy_part(void *context, unsigned number)
{
    const copying *all = context;
    const size_t begin = begin_of(all->cut, number);
    memcpy(all->to + begin, all->from + begin, size_of(all->cut, number));
}

void sn_parallel_copy(unsigned threads, const uint8_t *from, size_t size, uint8_t *to)
{
    copying all = {cut_up(size, threads), from, to};
    share_out(copy_part, &all, all.cut.parts);
}
