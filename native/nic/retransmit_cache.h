/* Decides which bytes of a kernel's connection are floats, and repeats that decision for retransmissions.

   A kernel stamps a socket's current ToS on every packet, retransmissions included, and cuts retransmissions anywhere.
   The NIC must treat a byte the second time as it did the first, or a peer that received half of a word encoded one way
   and half another way would decode values that were never written. Hence:

   1. Each byte is classified when first seen, and remembered until the peer has acknowledged it: plain, or part of a
      tagged range, whose words and blocks are counted from its first byte.
   2. Of the bytes first seen in one segment, whole words are *coded*: encoded or, if that does not shrink them, rounded
      (FORMAT.md). The bytes of an incomplete word are sent *exact*, and so are its other bytes whenever they come.
   3. Coded bytes are cached. Retransmissions of them are added from the cache, widened to multiples of 64 bytes (or of
      the codec's blocks) from the start of the tagged range, so that words and blocks are cut as the first time.
   4. Bytes that the kernel sent but the NIC never saw (the device's queue was full) are classified when they come. They
      belong to the tagged range of the bytes that follow, unless that began later: an application changes the tag only
      when all bytes before are acknowledged (docs/kernel.md). A tagged range of unknown beginning is sent exact.

   Positions are those of softnic/tcp/seq.py: the SYN has 0, the first byte 1. */
#ifndef SOFTNIC_RETRANSMIT_CACHE_H
#define SOFTNIC_RETRANSMIT_CACHE_H
/* C only */
#include <stdbool.h>
#include <stdint.h>
/* all */

enum {
    SN_PLAIN_BYTES = -1,   /* in the place of a tag */
    SN_UNKNOWN_ORIGIN = -1 /* in the place of the position of a tagged range's first byte */
};

typedef struct sn_cached_bytes sn_cached_bytes;

/* Consecutive bytes treated alike. */
typedef struct {
    int64_t start, end; /* positions */
    int64_t origin;     /* of the tagged range; SN_UNKNOWN_ORIGIN */
    int32_t tos;        /* without its ECN bits; SN_PLAIN_BYTES */
    uint32_t block;     /* bytes between two places where the tagged range may be cut */
    sn_cached_bytes *cached; /* the bytes, if they are coded */
} sn_cached_range;

/* The unacknowledged bytes that one end of a connection has sent. */
typedef struct {
    uint32_t iss; /* sequence number of its SYN */
    int64_t una;  /* all positions before it are acknowledged */
    sn_cached_range *ranges; /* by position, without overlap; the last one stays as the end of the bytes seen */
    uint32_t first, count, capacity; /* those in use: `count` from `first` on */
    bool is_lent;              /* the parts of a segment are in use: the bytes of acknowledged ranges stay ... */
    sn_cached_bytes *released; /* here */
} sn_retransmit_cache;

/* Part of a segment whose bytes are all treated alike. */
typedef struct {
    const uint8_t *payload;
    uint32_t length;
    uint32_t seq;          /* sequence number of the first byte */
    int32_t tos;           /* SN_PLAIN_BYTES */
    uint32_t block_offset; /* of coded bytes, from the start of the tagged range, modulo SN_LONGEST_BLOCK; else 0 */
    bool coded;            /* encoded or rounded; false: sent exact */
} sn_tx_part;

typedef struct {
    sn_tx_part *items;
    uint32_t count, capacity;
} sn_tx_parts;

/* A segment of the kernel. */
typedef struct {
    uint32_t seq;
    const uint8_t *payload;
    uint32_t length;
    int32_t tos;    /* that selects an offload, without its ECN bits; SN_PLAIN_BYTES */
    uint32_t block; /* bytes between two places where a range of its codec may be cut */
} sn_tx_segment;

/* Begins with nothing sent but a SYN with this number. Returns -1 if there is no memory. */
int sn_retransmit_cache_open(sn_retransmit_cache *cache, uint32_t iss);

void sn_retransmit_cache_close(sn_retransmit_cache *cache);

/* Bytes that are cached. */
uint64_t sn_retransmit_cached_bytes(const sn_retransmit_cache *cache);

/* Drops the bytes before this sequence number. An acknowledgement of bytes never sent is ignored. */
void sn_retransmit_acknowledge(sn_retransmit_cache *cache, uint32_t number);

/* Lists the parts to send for a segment, in order, without acknowledged ones. Their payloads are those of the segment
   and of the cache, which keeps them until `sn_retransmit_give_back`. Returns -1 if there is no memory. */
int sn_retransmit_parts(sn_retransmit_cache *cache, const sn_tx_segment *segment, sn_tx_parts *parts);

void sn_retransmit_give_back(sn_retransmit_cache *cache);

#endif
