#include "nic/secure_channel.h"

#include <stddef.h>

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

uint32_t sn_secure_send(sn_secure_channel *c, int fd, uint32_t address, uint16_t port, const uint8_t *data,
                        const uint32_t *offsets, const uint32_t *lengths, uint32_t count, int gso, double now)
{
    const int64_t peer = sn_find_peer(c->keys, c->peer_count, address, port);
    sn_session *session = peer < 0 ? NULL : sn_sending_session(c->peers[peer], now);
    uint32_t done = 0;
    if (session == NULL || sn_session_needs_rekey(session, now))
        return 0;
    while (done < count) {
        const uint32_t most = count - done < c->frames ? count - done : c->frames;
        const uint32_t sealed = sn_encrypt(c->cipher, &session->encryptor, data, offsets + done, lengths + done, most,
                                           c->out, c->size, c->offsets, c->lengths);
        const int sent = sealed ? sn_udp_send(fd, address, port, c->out, c->offsets, c->lengths, sealed, gso) : 0;
        if (sent <= 0)
            break;
        done += (uint32_t)sent;
        if ((uint32_t)sent < sealed)
            break;
    }
    return done;
}

void sn_secure_begin(sn_secure_channel *c)
{
    c->opening = (sn_opening){0};
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
    const uint32_t done = sn_decrypt(c->cipher, peer->hello_key, decryptors, count, batch->data, batch->offsets + at,
                                     batch->lengths + at, left, batch->offsets + o->frames,
                                     batch->lengths + o->frames, &o->found);
    o->frames += o->found.frames;
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
