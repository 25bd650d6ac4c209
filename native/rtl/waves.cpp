// Replays one frame through `packet_loop` and writes every signal to a VCD, for `softnic inspect --vcd`. The frame's beats
// go in as fast as they are taken, and what comes out is always taken. A cycle is 10 ns, the 100 MHz of Li et al. (MICRO
// 2018), Section VII: inputs change at the falling edge of the clock, registers at the rising one.
// softnic/rtl/library.py compiles this file with the model that Verilator makes.
#include <cstdint>
#include <cstring>
#include <memory>

#include "verilated.h"
#include "verilated_vcd_c.h"

#include "Vpacket_loop.h"

namespace {

constexpr size_t BEAT = 32;
constexpr uint64_t HALF_NS = 5;
constexpr uint64_t RESET_CYCLES = 2, QUIET_CYCLES = 3;  // before the frame, and behind it
constexpr uint64_t PATIENCE = 65536;                    // cycles after which the engines are taken for stuck

enum { DONE = 0, DROPPED = 1, STUCK = 2, NOT_WRITTEN = 3 };

}  // namespace

// A frame as it passes one port. Cycles are counted from the start of the waveform.
struct sn_wave_port {
    uint8_t *bytes;
    size_t size, capacity;
    uint64_t first, last;  // cycles in which its first and its last beat are taken
};

struct sn_wave {
    const char *path;  // of the VCD
    int tag;           // the upper six bits of the ToS
    int k;             // the codec's parameter
    uint64_t cycles;
    struct sn_wave_port in, plain, out;
};

namespace {

template <class Data> void collect(sn_wave_port &port, const Data &data, uint32_t keep, uint64_t cycle)
{
    const size_t size = static_cast<size_t>(__builtin_popcount(keep));
    if (port.size == 0)
        port.first = cycle;
    port.last = cycle;
    if (size > port.capacity - port.size)
        return;
    std::memcpy(port.bytes + port.size, &data[0], size);
    port.size += size;
}

struct Replay {
    VerilatedContext context;
    std::unique_ptr<Vpacket_loop> model;
    VerilatedVcdC vcd;
    sn_wave &wave;
    size_t offered = 0;  // bytes of the frame that have been taken

    explicit Replay(sn_wave &wanted) : wave(wanted)
    {
        context.traceEverOn(true);
        model = std::make_unique<Vpacket_loop>(&context, "");
        model->trace(&vcd, 99);
        vcd.set_time_unit("ns");
        vcd.set_time_resolution("ns");
        vcd.open(wave.path);
        model->m_axis_tready = 1;
        model->tag = static_cast<uint8_t>(wave.tag);
        model->k = static_cast<uint8_t>(wave.k);
    }

    ~Replay()
    {
        model->final();
        vcd.close();
    }

    uint64_t now() const { return 2 * HALF_NS * wave.cycles; }

    void settle()  // the low half of a cycle
    {
        model->clk = 0;
        model->eval();
        vcd.dump(now());
    }

    void tick()
    {
        model->clk = 1;
        model->eval();
        vcd.dump(now() + HALF_NS);
        wave.cycles++;
    }

    void idle(uint64_t cycles, bool is_reset)
    {
        model->rst = is_reset;
        model->s_axis_tvalid = 0;
        for (uint64_t i = 0; i < cycles; i++) {
            settle();
            tick();
        }
        model->rst = 0;
    }

    void offer()
    {
        const size_t left = wave.in.size - offered, size = left < BEAT ? left : BEAT;
        model->s_axis_tvalid = left != 0;
        model->s_axis_tlast = left != 0 && left <= BEAT;
        model->s_axis_tkeep = size == BEAT ? UINT32_MAX : (UINT32_C(1) << size) - 1;
        std::memset(&model->s_axis_tdata[0], 0, BEAT);
        std::memcpy(&model->s_axis_tdata[0], wave.in.bytes + offered, size);
    }

    void take()
    {
        if (model->s_axis_tvalid && model->s_axis_tready) {
            wave.in.first = offered ? wave.in.first : wave.cycles;
            wave.in.last = wave.cycles;
            offered += wave.in.size - offered < BEAT ? wave.in.size - offered : BEAT;
        }
        if (model->plain_axis_tvalid && model->plain_axis_tready)
            collect(wave.plain, model->plain_axis_tdata, model->plain_axis_tkeep, wave.cycles);
        if (model->m_axis_tvalid)
            collect(wave.out, model->m_axis_tdata, model->m_axis_tkeep, wave.cycles);
    }

    int run()
    {
        idle(RESET_CYCLES, true);
        int result = STUCK;
        while (result == STUCK && wave.cycles < PATIENCE) {
            offer();
            settle();
            take();
            result = model->dropped ? DROPPED : model->m_axis_tvalid && model->m_axis_tlast ? DONE : STUCK;
            tick();
        }
        idle(QUIET_CYCLES, false);
        vcd.flush();
        return vcd.isOpen() ? result : NOT_WRITTEN;  // closed by an error, of a full disk for example
    }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) int rtl_wave(struct sn_wave *wave)
{
    wave->cycles = 0;
    wave->plain.size = wave->out.size = 0;
    Replay replay(*wave);
    return replay.vcd.isOpen() ? replay.run() : NOT_WRITTEN;
}
