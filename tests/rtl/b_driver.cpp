// Runs a Verilated engine over AXI4-Streams, for Python's ctypes (tests/rtl/b_engine.py).
//
// `ports.h` of the build folder lists the engine's ports: INPUTS(X) and OUTPUTS(X) its streams, SETTINGS(X) its
// configuration. Each input stream is an array of beats, each output stream a buffer of them. A stall is the chance, of
// 256, that a port is not ready, or offers no beat, in a cycle; once offered, a beat stays until it is taken.
#include <cstdint>
#include <cstring>
#include <memory>

#include "Vdut.h"
#include "ports.h"
#include "verilated.h"

namespace {

constexpr int BEAT_BYTES = 64, IDLE = 20, CLOSED = 256;

struct Beat {
    uint8_t data[BEAT_BYTES];
    uint64_t keep;
    uint64_t cycle; // in which it was taken
    uint32_t last;
    uint32_t user;
};

struct Stream {
    Beat *beats;
    uint64_t count; // beats offered, or room for beats
    uint64_t done;  // beats taken
    uint32_t stall;
    uint32_t offered;
};

struct Engine {
    VerilatedContext context;
    std::unique_ptr<Vdut> dut{new Vdut{&context}};
    uint64_t random = 1;
    uint64_t cycle = 0;
};

uint32_t chance(Engine &engine)
{
    engine.random ^= engine.random << 13;
    engine.random ^= engine.random >> 7;
    engine.random ^= engine.random << 17;
    return engine.random >> 32 & 255;
}

void tick(Engine &engine)
{
    engine.dut->clk = 1;
    engine.dut->eval();
    engine.dut->clk = 0;
    engine.dut->eval();
    engine.cycle++;
}

template <typename Data> void offer(Engine &engine, Stream &stream, Data &data, uint64_t &keep, uint8_t &last)
{
    if (!stream.offered && stream.done < stream.count && chance(engine) >= stream.stall) {
        const Beat &beat = stream.beats[stream.done];
        memcpy(&data, beat.data, sizeof beat.data);
        keep = beat.keep;
        last = beat.last;
        stream.offered = 1;
    }
}

void taken(Engine &engine, Stream &stream)
{
    stream.beats[stream.done++].cycle = engine.cycle;
    stream.offered = 0;
}

template <typename Data> void receive(Engine &engine, Stream &stream, const Data &data, Beat beat)
{
    memcpy(beat.data, &data, sizeof beat.data);
    beat.cycle = engine.cycle;
    stream.beats[stream.done++] = beat;
}

} // namespace

extern "C" Engine *engine_new() { return new Engine; }

extern "C" void engine_free(Engine *engine) { delete engine; }

// Holds the reset for two cycles.
extern "C" void engine_reset(Engine *engine)
{
    Vdut &dut = *engine->dut;
    dut.clk = 0;
    dut.rst = 1;
#define CLEAR_INPUT(name) dut.name##_axis_tvalid = 0;
#define CLEAR_OUTPUT(name) dut.name##_axis_tready = 0;
    INPUTS(CLEAR_INPUT)
    OUTPUTS(CLEAR_OUTPUT)
    dut.eval();
    tick(*engine);
    tick(*engine);
    dut.rst = 0;
    dut.eval();
}

// Runs until all inputs are taken and `last_beats` beats with tlast have left each output stream, for `limit` cycles at
// most, and then IDLE cycles, in which no beat should follow. Returns the number of cycles without these, or -1 at the
// limit. `streams` has the inputs, then the outputs. An output with a stall of 256 is closed and not waited for.
extern "C" int64_t engine_run(Engine *engine, const uint32_t *settings, Stream *streams, uint64_t last_beats,
                              uint64_t limit, uint64_t seed)
{
    Vdut &dut = *engine->dut;
    const uint64_t start = engine->cycle;
    engine->random = seed * 0x9e3779b97f4a7c15 | 1;
#define SET(name) dut.name = *settings++;
    SETTINGS(SET)
#define COUNT(name) +1
    constexpr int inputs = 0 INPUTS(COUNT), outputs = 0 OUTPUTS(COUNT);
    uint64_t lasts[outputs] = {0};
    int idle = 0;
    while (engine->cycle - start < limit) {
        bool busy = false;
        int i = 0;
#define OFFER(name) \
        offer(*engine, streams[i], dut.name##_axis_tdata, dut.name##_axis_tkeep, dut.name##_axis_tlast); \
        dut.name##_axis_tvalid = streams[i++].offered;
        INPUTS(OFFER)
#define READY(name) \
        dut.name##_axis_tready = streams[i].done < streams[i].count && chance(*engine) >= streams[i].stall; \
        i++;
        OUTPUTS(READY)
        dut.eval();
        i = 0;
#define TAKE(name) \
        if (dut.name##_axis_tvalid && dut.name##_axis_tready) \
            taken(*engine, streams[i]); \
        busy |= streams[i].done < streams[i].count; \
        i++;
        INPUTS(TAKE)
#define RECEIVE(name) \
        if (dut.name##_axis_tvalid && dut.name##_axis_tready) { \
            receive(*engine, streams[i], dut.name##_axis_tdata, \
                    Beat{{}, dut.name##_axis_tkeep, 0, dut.name##_axis_tlast, dut.name##_axis_tuser}); \
            lasts[i - inputs] += dut.name##_axis_tlast; \
        } \
        busy |= lasts[i - inputs] < last_beats && streams[i].stall < CLOSED; \
        i++;
        OUTPUTS(RECEIVE)
        tick(*engine);
        if (!busy && idle++ == IDLE)
            return (int64_t)(engine->cycle - start) - idle;
    }
    return -1;
}
