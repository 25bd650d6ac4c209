#include "nic/secure_channel.h"

#include <stddef.h>
#include <string.h>

static bool is_valid(const sn_session *session, double now)
{
    return now < session->expires_at;
}

sn_session *sn_sending_session(const sn_secure_peer *peer, double now)
{
    sn_session *newest = NULL;
    for (uint32_t i = 0; i < peer->session_count; i++) {
        sn_session *session = peer->sessions[i];
        if (!is_valid(session, now))
            continue;
        if (session->settled)
            return session;
        if (newest == NULL)
            newest = session;
    }
    return newest;
}

bool sn_session_needs_rekey(const sn_session *session, double now)
{
    return now >= session->rekey_at || session->encryptor.counter >= session->rekey_counter;
}

uint32_t sn_secure_send(sn_secure_channel *c, int fd, uint32_t peer, const uint8_t *data,
                        const uint32_t *offsets, const uint32_t *lengths, uint32_t count, int gso, double now)
{
    sn_session *session = sn_sending_session(c->peers[peer], now);
    uint32_t done = 0;
    if (session == NULL || sn_session_needs_rekey(session, now))
        return 0;
    while (done < count) {
        const uint32_t most = count - done < c->frames ? count - done : c->frames;
        const uint32_t sealed = sn_encrypt(c->cipher, &session->encryptor, data, offsets + done, lengths + done, most,
                                           c->out, c->size, c->offsets, c->lengths);
        const int sent = sealed ? sn_udp_send(fd, &c->keys[peer], c->out, c->offsets, c->lengths, sealed, gso) : 0;
        if (sent <= 0)
            break;
        done += (uint32_t)sent;
        c->peers[peer]->sent_at = now;
        if ((uint32_t)sent < sealed)
            break;
    }
    return done;
}

enum { KEY_BYTES = sizeof(sn_endpoint), MOST_BYTES = 65535 };

/* Passes a datagram on to its queue. */
static void pass_on(sn_secure_queues *queues, uint32_t queue, const sn_endpoint *sender, const uint8_t *datagram,
                    uint32_t length)
{
    uint8_t record[KEY_BYTES + MOST_BYTES];
    const uint32_t offset = 0, size = KEY_BYTES + length;
    memcpy(record, sender, KEY_BYTES);
    memcpy(record + KEY_BYTES, datagram, length);
    if (sn_inbox_put(queues->inboxes[queue], record, &offset, &size, 1))
        queues->passed++;
    else
        queues->dropped++;
}

/* Takes the datagrams of other queues out of the batch. */
static void steer(sn_secure_channel *c, sn_source *source)
{
    sn_secure_queues *queues = &c->queues;
    const sn_datagrams *batch = &c->batch;
    const uint32_t end = source->first + source->count;
    uint32_t kept = source->first;
    for (uint32_t i = source->first; i < end; i++) {
        const uint32_t offset = batch->offsets[i], length = batch->lengths[i];
        const uint32_t queue = sn_sealed_queue(batch->data + offset, length, queues->count, queues->own);
        if (queue != queues->own && length <= MOST_BYTES) {
            pass_on(queues, queue, &c->keys[source->peer], batch->data + offset, length);
        } else {
            batch->offsets[kept] = offset;
            batch->lengths[kept++] = length;
        }
    }
    source->count = kept - source->first;
}

void sn_secure_begin(sn_secure_channel *c)
{
    c->opening = (sn_opening){0};
    if (c->queues.count > 1)
        for (uint32_t i = 0; i < c->batch.received->sources; i++)
            steer(c, c->batch.sources + i);
}

bool sn_secure_take(sn_secure_channel *c, uint64_t *size)
{
    sn_secure_queues *queues = &c->queues;
    sn_datagrams batch = {.sources = queues->sources, .received = &queues->received};
    const uint32_t count =
        sn_inbox_take(queues->inboxes[queues->own], &batch.data, size, &batch.offsets, &batch.lengths);
    uint32_t frames = 0, sources = 0;
    for (uint32_t i = 0; i < count; i++) {
        sn_endpoint sender;
        memcpy(&sender, batch.data + batch.offsets[i], KEY_BYTES);
        const int64_t peer = sn_find_peer(c->keys, c->peer_count, &sender);
        if (peer < 0)
            continue; /* it is not one any more */
        if (sources == 0 || batch.sources[sources - 1].peer != (uint32_t)peer)
            batch.sources[sources++] = (sn_source){(uint32_t)peer, frames, 0};
        batch.sources[sources - 1].count++;
        batch.offsets[frames] = batch.offsets[i] + KEY_BYTES;
        batch.lengths[frames++] = batch.lengths[i] - KEY_BYTES;
    }
    queues->received = (sn_received){.sources = sources, .frames = frames};
    c->batch = batch;
    return frames > 0;
}

/* Opens datagrams of a source up to a hello. Returns whether there is something to look at. */
static bool open_some(sn_secure_channel *c, const sn_source *source, double now)
{
    sn_opening *o = &c->opening;
    const sn_datagrams *batch = &c->batch;
    const sn_secure_peer *peer = c->peers[source->peer];
    const uint32_t at = source->first + o->done, left = source->count - o->done;
    sn_session *sessions[SN_MOST_SESSIONS];
    sn_decryptor *decryptors[SN_MOST_SESSIONS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < peer->session_count; i++) {
        if (is_valid(peer->sessions[i], now)) {
            sessions[count] = peer->sessions[i];
            decryptors[count++] = &peer->sessions[i]->decryptor;
        }
    }
    const uint32_t done = sn_decrypt(c->cipher, peer->hello_keys, peer->hello_key_count, decryptors, count,
                                     batch->data, batch->offsets + at, batch->lengths + at, left,
                                     batch->offsets + o->frames, batch->lengths + o->frames, &o->found);
    o->frames += o->found.frames;
    if (o->found.by[0] + o->found.by[1] > 0)
        c->heard_at[source->peer] = now;
    o->at_hello = done < left;
    if (o->at_hello)
        o->hello = batch->offsets[at + done];
    o->done += done + o->at_hello;
    o->shown = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (o->found.by[i] && !sessions[i]->settled)
            o->shown = sessions[i];
    }
    return o->at_hello || o->shown || o->found.frames < done;
}

/* Lists the frames of the source that has been opened, and goes on to the next one. */
static void close_source(sn_secure_channel *c)
{
    sn_opening *o = &c->opening;
    sn_source *sources = c->batch.sources;
    if (o->frames > o->first)
        sources[o->kept++] = (sn_source){sources[o->source].peer, o->first, o->frames - o->first};
    o->first = o->frames;
    o->done = 0;
    o->source++;
}

bool sn_secure_open(sn_secure_channel *c, double now)
{
    sn_opening *o = &c->opening;
    sn_received *received = c->batch.received;
    while (o->source < received->sources) {
        const sn_source *source = &c->batch.sources[o->source];
        if (o->done < source->count && open_some(c, source, now))
            return true;
        if (o->done == source->count)
            close_source(c);
    }
    received->sources = o->kept;
    received->frames = o->frames;
    return false;
}
