/* Sealed datagrams: frames under AES-256-GCM, each authenticated by itself, none taken twice (docs/FORMAT.md, "Sealed
   datagrams"). The cipher is OpenSSL's; its functions are found at run time and come as arguments. */
#ifndef SOFTNIC_AEAD_H
#define SOFTNIC_AEAD_H
/* C only */
#include <stddef.h>
#include <stdint.h>
/* all */

/* First bytes of the two kinds of datagrams. Both lack VXLAN's I flag (0x08), so that whoever expects VXLAN drops them. */
enum { SN_SECURE_HELLO = 0x10, SN_SECURE_FRAME = 0x11 };

/* Bytes before a sealed frame (kind, VNI, session, counter) and behind it (tag), and both. */
enum { SN_SECURE_HEADER = 16, SN_SECURE_TAG = 16, SN_SECURE_OVERHEAD = 32 };

/* Counters that a datagram may lag behind the highest one seen, and still be told from a replay (RFC 6479). */
enum { SN_REPLAY_WORDS = 128, SN_REPLAY_WINDOW = 8128 };

/* A hello, of which the last bytes authenticate the others. */
enum { SN_HELLO_LENGTH = 88, SN_HELLO_MAC = 16 };

/* Of libcrypto 1.1.1 or later. A `context` is an EVP_CIPHER_CTX whose cipher and key are set. */
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

/* One direction of a session, where it is sent. */
typedef struct {
    void *context;
    uint8_t nonce[12];  /* every datagram's is this one, the last 8 bytes xored with its counter (RFC 8446, 5.3) */
    uint8_t header[8];  /* that all its datagrams begin with */
    uint64_t counter;   /* of the next datagram: goes up before it is used, whatever becomes of that */
    uint64_t limit;     /* no datagram has this counter or a higher one */
} sn_encryptor;

/* The same where it is received. */
typedef struct {
    void *context;
    uint8_t nonce[12];
    uint8_t header[8];
    uint64_t next;                    /* one more than the highest counter opened */
    uint64_t seen[SN_REPLAY_WORDS];   /* a bit for each counter: bit n of the ring is that of counter n modulo its size */
} sn_decryptor;

/* What became of the datagrams that one call of sn_decrypt has looked at. Each is in one of these. */
typedef struct {
    uint32_t frames;    /* opened and listed */
    uint32_t empty;     /* opened, but shorter than an Ethernet header: they say that the sender has the session */
    uint32_t wrong_key;   /* hellos of another key */
    uint32_t plaintext;    /* VXLAN: not sealed */
    uint32_t malformed; /* none of the kinds, or of another length */
    uint32_t unknown;   /* of no session that was given */
    uint32_t replayed;  /* seen before, or too old to tell */
    uint32_t forged;    /* not sealed with the session's key, or altered since */
    uint32_t by[2];     /* of those opened: by which opener */
} sn_decrypted;

/* Seals `count` frames side by side into `out`, which takes SN_SECURE_OVERHEAD bytes more for each than they have; notes
   where in offsets_out and lengths_out. Returns how many: fewer if `room` is too small, the counter is at its limit, or
   libcrypto fails. */
uint32_t sn_encrypt(const sn_cipher *cipher, sn_encryptor *sealer, const uint8_t *data, const uint32_t *offsets,
                 const uint32_t *lengths, uint32_t count, uint8_t *out, size_t room, uint32_t *offsets_out,
                 uint32_t *lengths_out);

/* Opens datagrams of one peer where they lie, by the `opener_count` (at most 2) openers, and lists the frames in
   offsets_out and lengths_out, which may be `offsets` and `lengths`. Stops at a hello that was made under `hello_key`
   (32 bytes): what follows may be of the session that it makes. Returns how many datagrams come before it. */
uint32_t sn_decrypt(const sn_cipher *cipher, const uint8_t *hello_key, sn_decryptor *const *openers, uint32_t opener_count,
                 uint8_t *data, const uint32_t *offsets, const uint32_t *lengths, uint32_t count,
                 uint32_t *offsets_out, uint32_t *lengths_out, sn_decrypted *found);

#endif
