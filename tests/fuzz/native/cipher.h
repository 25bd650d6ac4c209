/* A cipher that touches every byte it is given, so that a fuzzer is not held up by a tag that it cannot guess: `verdict`
   says how often a tag is right (0: never, 1: always, 2: by its first bit, which is set in those that it makes). */
#ifndef SOFTNIC_FUZZ_CIPHER_H
#define SOFTNIC_FUZZ_CIPHER_H
#include "fuzz.h"
#include "nic/aead.h"

static uint32_t verdict;
static uint8_t tag_byte;

static int init(void *context, const void *cipher, void *engine, const uint8_t *key, const uint8_t *nonce, int encrypt)
{
    (void)context, (void)cipher, (void)engine, (void)key, (void)encrypt;
    return nonce[0] == 0;
}

static int update(void *context, uint8_t *out, int *out_length, const uint8_t *in, int in_length)
{
    (void)context;
    for (int i = 0; out && i < in_length; i++)
        out[i] = in[i] ^ 0x55;
    *out_length = in_length;
    return in_length > 0;
}

static int final(void *context, uint8_t *out, int *out_length)
{
    (void)context, (void)out;
    *out_length = 0;
    return verdict == 0 ? 0 : verdict == 1 ? 1 : tag_byte & 1;
}

static int control_cipher(void *context, int type, int argument, void *pointer)
{
    enum { GET_TAG = 0x10 };
    uint8_t whole[SN_SECURE_TAG];
    (void)context;
    CHECK(argument == SN_SECURE_TAG);
    if (type == GET_TAG) {
        memset(pointer, 1, SN_SECURE_TAG);
        return 1;
    }
    memcpy(whole, pointer, sizeof whole);
    tag_byte = whole[0];
    return 1;
}

static uint8_t *hmac(const void *hash, const void *key, int key_length, const uint8_t *data, size_t length, uint8_t *out,
                     unsigned *out_length)
{
    (void)hash, (void)key, (void)key_length;
    memset(out, 0, 32);
    for (size_t i = 0; i < length; i++)
        out[0] ^= data[i];
    *out_length = 32;
    return out;
}

static const sn_cipher CIPHER = {init, update, final, control_cipher, hmac, NULL};

#endif
