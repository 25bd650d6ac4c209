// Both directions of a NIC of Li et al. (MICRO 2018), Section VI-A and Fig. 8, one behind the other: `receive` decodes a
// frame, and `send` encodes what leaves it. `softnic inspect --vcd` replays captured frames here (waves.cpp), so that one
// waveform has the encoded bits, the words, and the bits that these become. `plain_axis` shows the frame between them.
module packet_loop #(
    parameter bit IS_BOUNDED = 1'b1,  // codec 2; 0: codec 1
    parameter int BEATS = 2048        // of the memories: frames of up to 32 KiB
) (
    input logic clk,
    input logic rst,
    input logic [5:0] tag,
    input logic [4:0] k,
    output logic dropped,
    input logic [255:0] s_axis_tdata,
    input logic [31:0] s_axis_tkeep,
    input logic s_axis_tvalid,
    output logic s_axis_tready,
    input logic s_axis_tlast,
    output logic [255:0] plain_axis_tdata,
    output logic [31:0] plain_axis_tkeep,
    output logic plain_axis_tvalid,
    output logic plain_axis_tready,
    output logic plain_axis_tlast,
    output logic [255:0] m_axis_tdata,
    output logic [31:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input logic m_axis_tready,
    output logic m_axis_tlast
);
    wire is_dropped_in, is_dropped_out;
    assign dropped = is_dropped_in || is_dropped_out;
    packet_path #(
        .DECODES(1'b1),
        .IS_BOUNDED(IS_BOUNDED),
        .BEATS(BEATS)
    ) receive (
        .clk,
        .rst,
        .tag,
        .k,
        .dropped(is_dropped_in),
        .s_axis_tdata,
        .s_axis_tkeep,
        .s_axis_tvalid,
        .s_axis_tready,
        .s_axis_tlast,
        .m_axis_tdata(plain_axis_tdata),
        .m_axis_tkeep(plain_axis_tkeep),
        .m_axis_tvalid(plain_axis_tvalid),
        .m_axis_tready(plain_axis_tready),
        .m_axis_tlast(plain_axis_tlast)
    );
    packet_path #(
        .DECODES(1'b0),
        .IS_BOUNDED(IS_BOUNDED),
        .BEATS(BEATS)
    ) send (
        .clk,
        .rst,
        .tag,
        .k,
        .dropped(is_dropped_out),
        .s_axis_tdata(plain_axis_tdata),
        .s_axis_tkeep(plain_axis_tkeep),
        .s_axis_tvalid(plain_axis_tvalid),
        .s_axis_tready(plain_axis_tready),
        .s_axis_tlast(plain_axis_tlast),
        .m_axis_tdata,
        .m_axis_tkeep,
        .m_axis_tvalid,
        .m_axis_tready,
        .m_axis_tlast
    );
endmodule
