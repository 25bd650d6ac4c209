/* Encrypted datagrams: one frame each under AES-256-GCM, authenticated and protected from replay (docs/FORMAT.md,
   "Sealed datagrams"). The cipher is OpenSSL's, whose functions are found at run time and passed as arguments. */
#ifndef SOFTNIC_AEAD_H
#define SOFTNIC_AEAD_H
/* C only */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* all */

/* First bytes of the kinds of datagrams: hellos of the network's key, frames, hellos of nodes' keys, and what is not the
   link's (softnic/link/udp.py). None has VXLAN's I flag (0x08), so VXLAN receivers drop them. */
enum { SN_SECURE_HELLO = 0x10, SN_SECURE_FRAME = 0x11, SN_IDENTITY_HELLO = 0x12, SN_OTHER_DATAGRAM = 0x13 };

/* Bytes before an encrypted frame (kind, VNI, session, counter), behind it (tag), and their sum. */
enum { SN_SECURE_HEADER = 16, SN_SECURE_TAG = 16, SN_SECURE_OVERHEAD = 32 };

/* How far a counter may lag behind the highest one and still be told from a replay (RFC 6479). */
enum { SN_REPLAY_WORDS = 128, SN_REPLAY_WINDOW = 8128 };

/* A NIC with several queues counts the datagrams of each by itself. The first byte of a counter is then the lane of the
   frame, which is the same at both ends (steering.h), shifted by 3 bits, and the queue that has sealed it. */
enum { SN_COUNTER_BITS = 56, SN_COUNTER_QUEUES = 8, SN_COUNTER_LANE = 3 };

/* Sizes of both kinds of hellos and of the MAC at their end; where the second kind has the hint of its keys. */
enum { SN_HELLO_LENGTH = 88, SN_IDENTITY_HELLO_LENGTH = 96, SN_HELLO_MAC = 16, SN_HELLO_HINT = 12 };

/* Two generations of keys of each of two nodes. */
enum { SN_MOST_HELLO_KEYS = 4 };

/* A key that authenticates hellos of a peer. */
typedef struct {
    uint8_t kind; /* SN_SECURE_HELLO, or SN_IDENTITY_HELLO with this hint */
    uint8_t hint;
    uint8_t key[32];
} sn_hello_key;

/* Functions of libcrypto 1.1.1 or later. A `context` is an EVP_CIPHER_CTX with cipher and key set. */
typedef struct {
    int (*init)(void *context, const void *cipher, void *engine, const uint8_t *key, const uint8_t *nonce,
                int encrypt);                                                               /* EVP_CipherInit_ex */
    int (*update)(void *context, uint8_t *out, int *out_length, const uint8_t *in, int in_length);
    int (*final)(void *context, uint8_t *out, int *out_length);
    int (*control)(void *context, int type, int argument, void *pointer);
    uint8_t *(*hmac)(const void *hash, const void *key, int key_length, const uint8_t *data, size_t length,
                     uint8_t *out, unsigned *out_length);
    const void *sha256;
} sn_cipher;

/* The sending end of one direction of a session. */
typedef struct {
    void *context;
    uint8_t nonce[12];  /* base nonce; its last 8 bytes are xored with each datagram's counter (RFC 8446, section 5.3) */
    uint8_t header[8];  /* first bytes of all its datagrams */
    uint64_t counter;   /* of the next datagram; incremented before use */
    uint64_t limit;     /* counters stay below this, ... */
    bool lanes;         /* and have a first byte, */
    uint8_t queue;      /* of this queue */
} sn_encryptor;

/* Which counters were accepted. */
typedef struct {
    uint64_t next;                    /* one more than the highest */
    uint64_t seen[SN_REPLAY_WORDS];   /* bit n is that of the counters n modulo the ring's size */
} sn_replay_window;

/* The receiving end of one direction of a session. */
typedef struct {
    void *context;
    uint8_t nonce[12];
    uint8_t header[8];
    sn_replay_window window;
    sn_replay_window *by_queue; /* of each queue of the sender; NULL: its counters have no first byte */
} sn_decryptor;

/* Counts of the datagrams examined by one call of sn_decrypt. Each is in exactly one. */
typedef struct {
    uint32_t frames;    /* decrypted and listed */
    uint32_t empty;     /* decrypted, but shorter than an Ethernet header: they confirm the session */
    uint32_t wrong_key;   /* hellos under another key, or of another kind than those of the peer's keys */
    uint32_t plaintext;    /* VXLAN, not encrypted */
    uint32_t malformed; /* of no known kind or length */
    uint32_t unknown;   /* of an unknown session */
    uint32_t replayed;  /* seen before, or too old to tell */
    uint32_t forged;    /* not encrypted with the session's key, or altered */
    uint32_t by[2];     /* decrypted datagrams, by decryptor */
    uint32_t key;       /* that has authenticated the hello behind them, if there is one */
    bool has_foreign;   /* a hello of nodes' keys is among those under another key: ... */
    uint32_t foreign;   /* where the last of them is, which may be another peer's that is at this address now */
} sn_decrypted;

/* Encrypts `count` frames into consecutive datagrams at `out`, each SN_SECURE_OVERHEAD bytes longer than its frame, and
   lists them in offsets_out and lengths_out. Returns how many: fewer if `capacity` is too small, the counter reaches
   its limit, or libcrypto fails. */
uint32_t sn_encrypt(const sn_cipher *cipher, sn_encryptor *encryptor, const uint8_t *data, const uint32_t *offsets,
                 const uint32_t *lengths, uint32_t count, uint8_t *out, size_t capacity, uint32_t *offsets_out,
                 uint32_t *lengths_out);

/* Decrypts datagrams of one peer in place with `decryptor_count` (at most 2) decryptors, and lists the frames in
   offsets_out and lengths_out, which may be `offsets` and `lengths`. Stops at a hello under one of `key_count` keys,
   because later datagrams may belong to the session that it makes. Returns how many datagrams precede it. */
uint32_t sn_decrypt(const sn_cipher *cipher, const sn_hello_key *keys, uint32_t key_count,
                    sn_decryptor *const *decryptors, uint32_t decryptor_count, uint8_t *data, const uint32_t *offsets,
                    const uint32_t *lengths, uint32_t count, uint32_t *offsets_out, uint32_t *lengths_out,
                    sn_decrypted *found);

/* Returns whether a datagram is of the decryptor's session by its header, and has a higher counter than any opened. */
int sn_is_ahead(sn_decryptor *decryptor, const uint8_t *datagram, uint32_t length);

#endif
