// A node of the tests' ring: ring_step, whose settings come as a stream, a beat for each step (tests/rtl/b_ring.py).
module b_ring_node #(
    parameter int DEPTH = 32,
    parameter logic [31:0] INVALID = 32'hffc00000
) (
    input  logic         clk,
    input  logic         rst_n,
    /* verilator lint_off UNUSEDSIGNAL */
    input  logic [511:0] step_tdata, // words of 32 bits: receives, adds, sends, stores, magnitude_bits, words
    input  logic [63:0]  step_tkeep,
    input  logic         step_tlast,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic         step_tvalid,
    output logic         step_tready,
    input  logic [511:0] rx_tdata,
    input  logic [63:0]  rx_tkeep,
    input  logic         rx_tvalid,
    output logic         rx_tready,
    input  logic         rx_tlast,
    input  logic [511:0] local_tdata,
    input  logic [63:0]  local_tkeep,
    input  logic         local_tvalid,
    output logic         local_tready,
    input  logic         local_tlast,
    output logic [511:0] tx_tdata,
    output logic [63:0]  tx_tkeep,
    output logic         tx_tvalid,
    input  logic         tx_tready,
    output logic         tx_tlast,
    output logic         tx_tuser,
    output logic [511:0] out_tdata,
    output logic [63:0]  out_tkeep,
    output logic         out_tvalid,
    input  logic         out_tready,
    output logic         out_tlast,
    output logic         out_tuser
);
    ring_step #(.DEPTH(DEPTH), .INVALID(INVALID)) engine (
        .clk, .rst_n, .receives(step_tvalid && step_tdata[0]), .adds(step_tvalid && step_tdata[32]),
        .sends(step_tdata[64]), .stores(step_tdata[96]), .magnitude_bits(step_tdata[131:128]),
        .words(step_tdata[191:160]), .starts(step_tready), .rx_tdata, .rx_tkeep, .rx_tvalid, .rx_tready, .rx_tlast,
        .local_tdata, .local_tkeep, .local_tvalid, .local_tready, .local_tlast, .tx_tdata, .tx_tkeep, .tx_tvalid,
        .tx_tready, .tx_tlast, .tx_tuser, .out_tdata, .out_tkeep, .out_tvalid, .out_tready, .out_tlast, .out_tuser
    );
endmodule
