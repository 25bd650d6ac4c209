// Drives the engines of this folder as kernels of native/codecs (sn_encoder, sn_decoder and sn_roundtripper of
// codecs.h). Each thread has its own models. A call is one packet: its beats go in as fast as the engine takes them,
// and what comes out is always taken. softnic/rtl/library.py compiles this file with the models that Verilator makes.
//
// An engine encodes all words it is given. The longest prefix that fits (sn_encode) is found by trials, each stopped at
// the first byte too many; no codec's output shrinks when words are added, so the trials are a bisection.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "verilated.h"

#include "Vbfp_decoder.h"
#include "Vbfp_encoder.h"
#include "Vbounded_decoder.h"
#include "Vbounded_encoder.h"
#include "Vinceptionn_decoder.h"
#include "Vinceptionn_encoder.h"
#include "Vrht_decoder.h"
#include "Vrht_encoder.h"

namespace {

constexpr size_t BURST_WORDS = 8;
constexpr size_t PART_WORDS = 4096;  // of a round trip, a multiple of SN_PART_WORDS
constexpr int PATIENCE = 4096;       // cycles without a beat after which an engine is taken for stuck
constexpr size_t BURST_BOUND = 35;   // bytes that as many words may take

thread_local uint64_t cycles_of_thread = 0;

// A model with its clock. In each cycle the owner sets inputs, calls `settle`, reads outputs, and calls `tick`.
template <class Model> struct Engine {
    VerilatedContext context;
    Model model{&context};
    int idle = 0;

    Engine()
    {
        model.clk = 0;
        reset();
    }
    ~Engine() { model.final(); }

    void settle() { model.eval(); }

    void tick(bool is_moving)
    {
        model.clk = 1;
        model.eval();
        model.clk = 0;
        cycles_of_thread++;
        idle = is_moving ? 0 : idle + 1;
        if (idle > PATIENCE) {
            std::fprintf(stderr, "softnic: the RTL engine %s has been stuck for %d cycles\n", model.modelName(), idle);
            std::abort();
        }
    }

    void reset()
    {
        model.rst = 1;
        model.s_axis_tvalid = 0;
        model.m_axis_tready = 1;
        settle();
        tick(true);
        model.rst = 0;
    }

    void set_parameter(int parameter)
    {
        if constexpr (requires { model.k; })
            model.k = static_cast<uint8_t>(parameter);
        else if constexpr (requires { model.magnitude_bits; })
            model.magnitude_bits = static_cast<uint8_t>(parameter);
        else
            (void)parameter;
    }
};

template <class Model> Engine<Model> &engine_of_thread()
{
    thread_local Engine<Model> engine;
    return engine;
}

// Bytes of the beats of an engine's ports.
template <class Model> constexpr size_t beat_bytes = sizeof std::declval<Model &>().s_axis_tdata;

// Returns the bytes of the beat that leaves.
template <class Model> size_t kept_bytes(const Model &model)
{
    return static_cast<size_t>(__builtin_popcountll(model.m_axis_tkeep));
}

// Returns whether the body whose last beat leaves is malformed. Bytes behind its words are not.
template <class Model> bool is_malformed(const Model &model)
{
    return model.m_axis_tuser && !model.is_late;
}

// Bytes that enter an engine as a packet, beat by beat.
template <class Model> struct Source {
    static constexpr size_t BEAT = beat_bytes<Model>;
    const uint8_t *bytes;
    size_t length;
    size_t taken = 0;

    bool is_done() const { return taken >= length; }

    void offer(Model &model) const
    {
        model.s_axis_tvalid = !is_done();
        if (is_done())
            return;
        const size_t left = length - taken, size = left < BEAT ? left : BEAT;
        std::memcpy(&model.s_axis_tdata[0], bytes + taken, size);
        model.s_axis_tkeep = UINT64_MAX >> (64 - size);
        model.s_axis_tlast = left <= BEAT;
    }

    // Returns whether the engine takes the beat in this cycle.
    bool advance(const Model &model)
    {
        const bool is_taken = model.s_axis_tvalid && model.s_axis_tready;
        taken += is_taken ? BEAT : 0;
        return is_taken;
    }
};

struct Encoded {
    bool fits;
    size_t size;  // bytes; those written so far if they do not fit
    size_t fed;   // words that the engine has taken
};

// Encodes all words. If they do not fit, the engine is reset.
template <class Model>
Encoded encode_all(int parameter, const uint8_t *words, size_t count, uint8_t *out, size_t capacity)
{
    Engine<Model> &engine = engine_of_thread<Model>();
    Model &model = engine.model;
    engine.set_parameter(parameter);
    Source<Model> source{words, 4 * count};
    size_t size = 0;
    for (bool is_last = false; !is_last;) {
        source.offer(model);
        engine.settle();
        const bool is_out = model.m_axis_tvalid;
        if (is_out) {
            const size_t some = kept_bytes(model);
            if (some > capacity - size) {
                engine.reset();
                return {false, size, source.taken / 4 < count ? source.taken / 4 : count};
            }
            std::memcpy(out + size, &model.m_axis_tdata[0], some);
            size += some;
            is_last = model.m_axis_tlast;
        }
        engine.tick(source.advance(model) || is_out);
    }
    model.s_axis_tvalid = 0;
    return {true, size, count};
}

// sn_encode (codecs.h) for a codec that is cut at multiples of `step` words.
template <class Model, size_t step>
size_t encode(int parameter, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity,
              size_t *consumed)
{
    *consumed = 0;
    if (count == 0)
        return 0;
    const Encoded whole = encode_all<Model>(parameter, words, count, out, capacity);
    if (whole.fits) {
        *consumed = count;
        return whole.size;
    }
    // The prefixes that may fit have cut + step * i words, 0 <= i < above. Those at `above` do not.
    const size_t cut = first % step ? first % step : step;
    size_t above = whole.fed > cut ? (whole.fed - cut + step - 1) / step : 0;
    size_t below = 0, best = 0, stride = 1;
    bool is_below_known = false;
    std::vector<uint8_t> trial(capacity);
    while (below < above) {
        const size_t leap = above - below > stride ? above - stride : below;
        const size_t middle = is_below_known ? below + (above - below) / 2 : leap;
        if (is_below_known && middle == below)
            break;
        const size_t some = cut + step * middle;
        const Encoded part = encode_all<Model>(parameter, words, some, trial.data(), capacity);
        if (part.fits) {
            std::memcpy(out, trial.data(), part.size);
            best = part.size;
            *consumed = some;
            below = middle;
            is_below_known = true;
        } else {
            above = middle;
            stride *= 2;
        }
    }
    return best;
}

// sn_decoder (codecs.h).
template <class Model>
ptrdiff_t decode(int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count)
{
    if (count == 0)
        return 0;
    if (length == 0)
        return -1;
    Engine<Model> &engine = engine_of_thread<Model>();
    Model &model = engine.model;
    engine.set_parameter(parameter);
    model.words = static_cast<uint32_t>(count);
    Source<Model> source{body, length};
    size_t done = 0;
    ptrdiff_t result = -1;
    for (bool is_last = false; !is_last;) {
        source.offer(model);
        engine.settle();
        const bool is_out = model.m_axis_tvalid;
        if (is_out) {
            const size_t some = kept_bytes(model);
            std::memcpy(words + done, &model.m_axis_tdata[0], some);
            done += some;
            is_last = model.m_axis_tlast;
            result = is_last && !is_malformed(model) ? static_cast<ptrdiff_t>(model.consumed) : -1;
        }
        engine.tick(source.advance(model) || is_out);
    }
    if (!source.is_done())  // the engine drops the rest of the packet, which may be long
        engine.reset();
    model.s_axis_tvalid = 0;
    return result;
}

// sn_roundtripper (codecs.h).
template <class Encoder, class Decoder>
void roundtrip(int parameter, const uint8_t *words, size_t count, uint8_t *out)
{
    uint8_t body[PART_WORDS / BURST_WORDS * BURST_BOUND];
    while (count) {
        const size_t some = count < PART_WORDS ? count : PART_WORDS;
        const Encoded whole = encode_all<Encoder>(parameter, words, some, body, sizeof body);
        decode<Decoder>(parameter, body, whole.size, out, some);
        words += 4 * some;
        out += 4 * some;
        count -= some;
    }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// The kernels of a codec, whose engines take the parameters from `lowest` to `highest`.
#define KERNELS(codec, step, lowest, highest) \
    EXPORT const int rtl_##codec##_parameters[2] = {lowest, highest}; \
    EXPORT size_t rtl_##codec##_encode(int parameter, const uint8_t *words, size_t count, size_t first, uint8_t *out, \
                                       size_t capacity, size_t *consumed) \
    { \
        return encode<V##codec##_encoder, step>(parameter, words, count, first, out, capacity, consumed); \
    } \
    EXPORT ptrdiff_t rtl_##codec##_decode(int parameter, const uint8_t *body, size_t length, uint8_t *words, \
                                          size_t count) \
    { \
        return decode<V##codec##_decoder>(parameter, body, length, words, count); \
    } \
    EXPORT void rtl_##codec##_roundtrip(int parameter, const uint8_t *words, size_t count, uint8_t *out) \
    { \
        roundtrip<V##codec##_encoder, V##codec##_decoder>(parameter, words, count, out); \
    }

KERNELS(inceptionn, 16, 1, 23)
KERNELS(bounded, 16, 1, 23)
KERNELS(bfp, 16, 3, 15)
KERNELS(rht, 128, 4, 4)

// Clock cycles that this thread has simulated.
EXPORT uint64_t rtl_cycles(void)
{
    return cycles_of_thread;
}
