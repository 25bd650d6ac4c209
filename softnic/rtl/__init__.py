"""The engines of native/rtl, hardware in SystemVerilog, as an implementation of the codecs: `SOFTNIC_KERNELS=rtl`.

Verilator translates the engines to C++, once per version of the sources; each codec call then clocks them. `verilator`
finds and runs Verilator, `library` makes shared libraries, `engines` enters one in the table of codecs. `waves` replays
frames and writes waveforms, which `vcd` reads.
"""
