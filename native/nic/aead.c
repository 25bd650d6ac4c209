/* AES-256-GCM over frames, one datagram each. Nonces are counters (NIST SP 800-38D, section 8.2.1) under a key per
   session and direction. The receiver detects replays by a ring of bits (RFC 6479), checked before a datagram is
   decrypted and updated only if its tag is right. */
#include "nic/aead.h"

#include <limits.h>
#include <string.h>

#include "nic/steering.h"
#include "words.h"

enum {
    NONCE = 12,
    FIXED_HEADER = 8, /* kind, VNI, session; the counter follows */
    ETHERNET_HEADER = 14,
    I_FLAG = 0x08,
    GET_TAG = 0x10, /* EVP_CTRL_AEAD_GET_TAG */
    SET_TAG = 0x11,
    WORD_BITS = 64,
    KEY = 32,
    HASH = 32 /* SHA-256 */
};

static void store_counter(uint8_t *at, uint64_t counter)
{
    sn_store32be(at, (uint32_t)(counter >> 32));
    sn_store32be(at + 4, (uint32_t)counter);
}

static uint64_t load_counter(const uint8_t *at)
{
    return (uint64_t)sn_load32be(at) << 32 | sn_load32be(at + 4);
}

static void nonce_of(uint8_t *nonce, const uint8_t *base, const uint8_t *counter)
{
    memcpy(nonce, base, NONCE);
    for (int i = 0; i < 8; i++)
        nonce[NONCE - 8 + i] ^= counter[i];
}

/* Writes header, ciphertext and tag to `out`. Returns 0 if libcrypto fails. */
static int encrypt_one(const sn_cipher *cipher, sn_encryptor *encryptor, const uint8_t *frame, uint32_t length,
                       uint8_t *out)
{
    uint8_t nonce[NONCE];
    int written;

    memcpy(out, encryptor->header, FIXED_HEADER);
    store_counter(out + FIXED_HEADER, encryptor->counter++);
    if (encryptor->lanes)
        out[FIXED_HEADER] = (uint8_t)(sn_frame_lane(frame, length) << SN_COUNTER_LANE | encryptor->queue);
    nonce_of(nonce, encryptor->nonce, out + FIXED_HEADER);
    return cipher->init(encryptor->context, NULL, NULL, NULL, nonce, -1)
        && cipher->update(encryptor->context, NULL, &written, out, SN_SECURE_HEADER)
        && (!length || cipher->update(encryptor->context, out + SN_SECURE_HEADER, &written, frame, (int)length))
        && cipher->final(encryptor->context, out + SN_SECURE_HEADER + length, &written)
        && cipher->control(encryptor->context, GET_TAG, SN_SECURE_TAG, out + SN_SECURE_HEADER + length);
}

uint32_t sn_encrypt(const sn_cipher *cipher, sn_encryptor *encryptor, const uint8_t *data, const uint32_t *offsets,
                 const uint32_t *lengths, uint32_t count, uint8_t *out, size_t capacity, uint32_t *offsets_out,
                 uint32_t *lengths_out)
{
    size_t used = 0;
    uint32_t done;

    if (capacity > UINT32_MAX)
        capacity = UINT32_MAX;
    for (done = 0; done < count && encryptor->counter < encryptor->limit; done++) {
        const size_t size = (size_t)lengths[done] + SN_SECURE_OVERHEAD;
        if (size > capacity - used || lengths[done] > INT_MAX
            || !encrypt_one(cipher, encryptor, data + offsets[done], lengths[done], out + used))
            break;
        offsets_out[done] = (uint32_t)used;
        lengths_out[done] = (uint32_t)size;
        used += size;
    }
    return done;
}

/* Returns whether no datagram with this counter has been accepted, as far as the ring tells. */
static int is_new(const sn_replay_window *window, uint64_t counter)
{
    if (counter >= window->next)
        return counter != UINT64_MAX;
    if (window->next - counter > SN_REPLAY_WINDOW)
        return 0;
    return !(window->seen[counter / WORD_BITS % SN_REPLAY_WORDS] >> counter % WORD_BITS & 1);
}

/* Records that a datagram with this counter was accepted. Clears the words between the highest counter so far and a
   higher one, whose counters were never seen. */
static void note(sn_replay_window *window, uint64_t counter)
{
    if (counter >= window->next) {
        const uint64_t last = window->next ? (window->next - 1) / WORD_BITS : 0;
        uint64_t ahead = counter / WORD_BITS - last;
        if (ahead > SN_REPLAY_WORDS)
            ahead = SN_REPLAY_WORDS;
        for (uint64_t i = 1; i <= ahead; i++)
            window->seen[(last + i) % SN_REPLAY_WORDS] = 0;
        window->next = counter + 1;
    }
    window->seen[counter / WORD_BITS % SN_REPLAY_WORDS] |= UINT64_C(1) << counter % WORD_BITS;
}

/* Returns what tells replays of a datagram, and its counter there. */
static sn_replay_window *window_of(sn_decryptor *decryptor, uint64_t *counter)
{
    if (decryptor->by_queue == NULL)
        return &decryptor->window;
    const uint64_t queue = *counter >> SN_COUNTER_BITS & (SN_COUNTER_QUEUES - 1);
    *counter &= (UINT64_C(1) << SN_COUNTER_BITS) - 1;
    return decryptor->by_queue + queue;
}

/* Decrypts in place. Returns whether the tag is right. */
static int decrypt_one(const sn_cipher *cipher, sn_decryptor *decryptor, uint8_t *datagram, uint32_t length)
{
    const uint32_t text = length - SN_SECURE_OVERHEAD;
    uint8_t *body = datagram + SN_SECURE_HEADER;
    uint8_t nonce[NONCE], rest[SN_SECURE_TAG];
    int written;

    nonce_of(nonce, decryptor->nonce, datagram + FIXED_HEADER);
    return cipher->init(decryptor->context, NULL, NULL, NULL, nonce, -1)
        && cipher->control(decryptor->context, SET_TAG, SN_SECURE_TAG, body + text)
        && cipher->update(decryptor->context, NULL, &written, datagram, SN_SECURE_HEADER)
        && (!text || cipher->update(decryptor->context, body, &written, body, (int)text))
        && cipher->final(decryptor->context, rest, &written) > 0;
}

static uint32_t decryptor_of(sn_decryptor *const *decryptors, uint32_t count, const uint8_t *datagram)
{
    uint32_t i = 0;
    while (i < count && memcmp(decryptors[i]->header, datagram, FIXED_HEADER) != 0)
        i++;
    return i;
}

/* Returns whether the MAC at the end of a hello is right, in constant time. */
static int is_authentic(const sn_cipher *cipher, const uint8_t *key, const uint8_t *hello, uint32_t hello_length)
{
    const uint32_t signed_length = hello_length - SN_HELLO_MAC;
    uint8_t mac[HASH];
    unsigned length = 0;
    uint8_t wrong = 0;

    if (!cipher->hmac(cipher->sha256, key, KEY, hello, signed_length, mac, &length) || length != HASH)
        return 0;
    for (int i = 0; i < SN_HELLO_MAC; i++)
        wrong |= mac[i] ^ hello[signed_length + i];
    return !wrong;
}

/* Returns the key that has authenticated a hello, or `count`. */
static uint32_t key_of(const sn_cipher *cipher, const sn_hello_key *keys, uint32_t count, const uint8_t *hello,
                       uint32_t length)
{
    uint32_t i = 0;
    for (; i < count; i++) {
        const int fits = keys[i].kind == hello[0]
            && (hello[0] == SN_SECURE_HELLO || keys[i].hint == hello[SN_HELLO_HINT]);
        if (fits && is_authentic(cipher, keys[i].key, hello, length))
            break;
    }
    return i;
}

/* Decrypts one datagram that is not a hello, and counts it in `found`. Returns whether it holds a frame. */
static int take(const sn_cipher *cipher, sn_decryptor *const *decryptors, uint32_t decryptor_count, uint8_t *datagram,
                uint32_t length, sn_decrypted *found)
{
    if (length && datagram[0] & I_FLAG) {
        found->plaintext++;
        return 0;
    }
    if (length < SN_SECURE_OVERHEAD || length > INT_MAX || datagram[0] != SN_SECURE_FRAME) {
        found->malformed++;
        return 0;
    }
    const uint32_t which = decryptor_of(decryptors, decryptor_count, datagram);
    if (which == decryptor_count) {
        found->unknown++;
        return 0;
    }
    uint64_t counter = load_counter(datagram + FIXED_HEADER);
    sn_replay_window *window = window_of(decryptors[which], &counter);
    if (!is_new(window, counter)) {
        found->replayed++;
        return 0;
    }
    if (!decrypt_one(cipher, decryptors[which], datagram, length)) {
        found->forged++;
        return 0;
    }
    note(window, counter);
    found->by[which]++;
    if (length < SN_SECURE_OVERHEAD + ETHERNET_HEADER) {
        found->empty++;
        return 0;
    }
    return 1;
}

int sn_is_ahead(sn_decryptor *decryptor, const uint8_t *datagram, uint32_t length)
{
    if (length < SN_SECURE_OVERHEAD || memcmp(decryptor->header, datagram, FIXED_HEADER) != 0)
        return 0;
    uint64_t counter = load_counter(datagram + FIXED_HEADER);
    const sn_replay_window *window = window_of(decryptor, &counter);
    return counter >= window->next;
}

uint32_t sn_decrypt(const sn_cipher *cipher, const sn_hello_key *keys, uint32_t key_count,
                    sn_decryptor *const *decryptors, uint32_t decryptor_count, uint8_t *data, const uint32_t *offsets,
                    const uint32_t *lengths, uint32_t count, uint32_t *offsets_out, uint32_t *lengths_out,
                    sn_decrypted *found)
{
    uint32_t i;

    *found = (sn_decrypted){0};
    for (i = 0; i < count; i++) {
        const uint32_t offset = offsets[i], length = lengths[i];
        uint8_t *datagram = data + offset;

        if (sn_hello_length(datagram, length)) {
            found->key = key_of(cipher, keys, key_count, datagram, length);
            if (found->key < key_count)
                break;
            found->wrong_key++;
            if (datagram[0] == SN_IDENTITY_HELLO) {
                found->has_foreign = true;
                found->foreign = offset;
            }
        } else if (take(cipher, decryptors, decryptor_count, datagram, length, found)) {
            offsets_out[found->frames] = offset + SN_SECURE_HEADER;
            lengths_out[found->frames++] = length - SN_SECURE_OVERHEAD;
        }
    }
    return i;
}
