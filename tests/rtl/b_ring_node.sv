// A node of the tests' ring: ring_step, whose settings come as a stream, a beat for each step (tests/rtl/b_ring.py).
module b_ring_node #(
    parameter int DEPTH = 32,
    parameter logic [31:0] INVALID = 32'hffc00000
) (
    input  logic         clk,
    input  logic         rst,
    /* verilator lint_off UNUSEDSIGNAL */
    input  logic [511:0] step_axis_tdata, // words of 32 bits: receives, adds, sends, stores, magnitude_bits, words
    input  logic [63:0]  step_axis_tkeep,
    input  logic         step_axis_tlast,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic         step_axis_tvalid,
    output logic         step_axis_tready,
    input  logic [511:0] rx_axis_tdata,
    input  logic [63:0]  rx_axis_tkeep,
    input  logic         rx_axis_tvalid,
    output logic         rx_axis_tready,
    input  logic         rx_axis_tlast,
    input  logic [511:0] local_axis_tdata,
    input  logic [63:0]  local_axis_tkeep,
    input  logic         local_axis_tvalid,
    output logic         local_axis_tready,
    input  logic         local_axis_tlast,
    output logic [511:0] tx_axis_tdata,
    output logic [63:0]  tx_axis_tkeep,
    output logic         tx_axis_tvalid,
    input  logic         tx_axis_tready,
    output logic         tx_axis_tlast,
    output logic         tx_axis_tuser,
    output logic [511:0] out_axis_tdata,
    output logic [63:0]  out_axis_tkeep,
    output logic         out_axis_tvalid,
    input  logic         out_axis_tready,
    output logic         out_axis_tlast,
    output logic         out_axis_tuser
);
    ring_step #(.DEPTH(DEPTH), .INVALID(INVALID)) engine (
        .clk, .rst, .receives(step_axis_tvalid && step_axis_tdata[0]), .adds(step_axis_tvalid && step_axis_tdata[32]),
        .sends(step_axis_tdata[64]), .stores(step_axis_tdata[96]), .magnitude_bits(step_axis_tdata[131:128]),
        .words(step_axis_tdata[191:160]), .starts(step_axis_tready), .rx_axis_tdata, .rx_axis_tkeep, .rx_axis_tvalid,
        .rx_axis_tready, .rx_axis_tlast, .local_axis_tdata, .local_axis_tkeep, .local_axis_tvalid, .local_axis_tready,
        .local_axis_tlast, .tx_axis_tdata, .tx_axis_tkeep, .tx_axis_tvalid, .tx_axis_tready, .tx_axis_tlast,
        .tx_axis_tuser, .out_axis_tdata, .out_axis_tkeep, .out_axis_tvalid, .out_axis_tready, .out_axis_tlast,
        .out_axis_tuser
    );
endmodule
