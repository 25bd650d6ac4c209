// All-reduce engine of the AI smart NIC: one step of the ring (Ma et al., arXiv:2204.10943, Fig. 3a and section IV-A).
// Receives a block from the node before, decompresses it, adds the local block, compresses the sum, sends it to the
// next node and writes it back, sixteen float32 words a cycle.
//
//   rx (body)     -> Rx FIFO    -> decompress -+                          +-> pack    -> Tx FIFO     -> tx (body)
//                                              +-> 16 adders -> quantise -+
//   local (words) -> input FIFO ---------------+                          +-> restore -> output FIFO -> out (words)
//
// Rules: what a step does follows from four settings, as the paper's control decides by position and step:
//
//   | step of N nodes        | receives | adds | sends | stores |
//   | 1                      | 0        | 1    | 1     | 0      |
//   | 2 to N - 1             | 1        | 1    | 1     | 0      |
//   | N: the sum is complete | 1        | 1    | 1     | 1      |
//   | N + 1 to 2N - 2        | 1        | 0    | 1     | 1      |
//   | 2N - 1                 | 1        | 0    | 0     | 1      |
//
// The received word is an addition's first operand. What is stored is what the sent body decodes to, so that all nodes
// end with the same bits; a body that is only passed on leaves as it came. Settings (these, magnitude_bits, and
// `words`, the words of the block) are taken in the cycle of `starts`, when the first beats of the step's inputs are
// here; the next step starts when this one's inputs have left the adders. *_axis_tuser beside *_axis_tlast is an error:
// a malformed body, or a local block of another length. Buffers hold DEPTH beats each. While all nodes send their first
// block, nobody takes what arrives: a block's body must fit into a Tx and an Rx FIFO, so that large blocks are passed
// in pieces.
module ring_step #(
    parameter int DEPTH = 512,
    parameter logic [31:0] INVALID = 32'hffc00000
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         receives,
    input  logic         adds,
    input  logic         sends,
    input  logic         stores,
    input  logic [3:0]   magnitude_bits,
    input  logic [31:0]  words,
    output logic         starts,
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
    // Buffers of both inputs.
    logic [511:0] body_data, block_data;
    logic [63:0]  body_keep, block_keep;
    logic         body_valid, body_ready, body_last, block_valid, block_ready, block_last;
    stream_fifo #(.WIDTH(577), .DEPTH(DEPTH)) rx_fifo (
        .clk, .rst, .s_data({rx_axis_tdata, rx_axis_tkeep, rx_axis_tlast}), .s_valid(rx_axis_tvalid),
        .s_ready(rx_axis_tready), .m_data({body_data, body_keep, body_last}), .m_valid(body_valid), .m_ready(body_ready)
    );
    stream_fifo #(.WIDTH(577), .DEPTH(DEPTH)) input_fifo (
        .clk, .rst, .s_data({local_axis_tdata, local_axis_tkeep, local_axis_tlast}), .s_valid(local_axis_tvalid),
        .s_ready(local_axis_tready), .m_data({block_data, block_keep, block_last}), .m_valid(block_valid),
        .m_ready(block_ready)
    );

    // Control: a step runs until the last beats of its inputs and of their sum have passed.
    logic [511:0] got_data;
    logic [63:0]  got_keep;
    logic         got_valid, got_ready, got_last, got_error, decoder_ready;
    logic        running, wants_body, wants_got, wants_block, wants_sum;
    logic        has_rx, has_local, to_tx, to_out;
    logic [3:0]  bits;
    logic [31:0] step_words;
    logic        body_passes, block_passes, sum_passes, sum_last;
    assign running = wants_body || wants_got || wants_block || wants_sum;
    assign starts = !running && (receives || adds) && (!receives || body_valid) && (!adds || block_valid);
    always_ff @(posedge clk) begin
        if (starts) begin
            {has_rx, has_local, to_tx, to_out} <= {receives, adds, sends, stores};
            {bits, step_words} <= {magnitude_bits, words};
        end
        if (rst) {wants_body, wants_got, wants_block, wants_sum} <= 4'b0000;
        else if (starts) {wants_body, wants_got, wants_block, wants_sum} <= {receives, receives, adds, 1'b1};
        else begin
            if (body_passes && body_last) wants_body <= 1'b0;
            if (got_valid && got_ready && got_last) wants_got <= 1'b0;
            if (block_passes && block_last) wants_block <= 1'b0;
            if (sum_passes && sum_last) wants_sum <= 1'b0;
        end
    end
    assign body_passes = body_valid && body_ready;
    assign block_passes = block_valid && block_ready;

    // Decompression.
    assign body_ready = decoder_ready && wants_body;
    logic        unused_is_late;
    logic [31:0] unused_consumed;
    bfp_decoder decompress (
        .clk, .rst, .magnitude_bits(bits), .words(step_words), .s_axis_tdata(body_data), .s_axis_tkeep(body_keep),
        .s_axis_tvalid(body_valid && wants_body), .s_axis_tready(decoder_ready), .s_axis_tlast(body_last),
        .m_axis_tdata(got_data), .m_axis_tkeep(got_keep), .m_axis_tvalid(got_valid), .m_axis_tready(got_ready),
        .m_axis_tlast(got_last), .m_axis_tuser(got_error), .is_late(unused_is_late), .consumed(unused_consumed)
    );

    // Reduction. A step with one input passes the adders by, so that no NaN is touched. The error of a received block
    // goes round the adders: it is known with the block's last beat, and the sum ends there or before.
    logic [511:0] added_data, sum_data;
    logic [63:0]  added_keep, sum_keep;
    logic         added_valid, added_last, added_error, sum_valid, sum_ready, sum_error;
    logic         reduces, a_ready, b_ready, was_bad;
    assign reduces = has_rx && has_local;
    assign got_ready = reduces ? a_ready : sum_ready;
    assign block_ready = wants_block && (reduces ? b_ready : sum_ready);
    float_add_lanes #(.LANES(16), .INVALID(INVALID)) adders (
        .clk, .rst, .a_axis_tdata(got_data), .a_axis_tkeep(got_keep), .a_axis_tvalid(got_valid && reduces),
        .a_axis_tready(a_ready), .a_axis_tlast(got_last), .b_axis_tdata(block_data), .b_axis_tkeep(block_keep),
        .b_axis_tvalid(block_valid && wants_block && reduces), .b_axis_tready(b_ready), .b_axis_tlast(block_last),
        .m_axis_tdata(added_data), .m_axis_tkeep(added_keep), .m_axis_tvalid(added_valid),
        .m_axis_tready(sum_ready && reduces), .m_axis_tlast(added_last), .m_axis_tuser(added_error)
    );
    always_ff @(posedge clk) begin
        if (rst || starts) was_bad <= 1'b0;
        else if (got_valid && got_ready && got_last && got_error) was_bad <= 1'b1;
    end
    always_comb begin
        if (reduces) begin
            {sum_data, sum_keep, sum_last} = {added_data, added_keep, added_last};
            {sum_valid, sum_error} = {added_valid, added_error || was_bad};
        end else if (has_rx) begin
            {sum_data, sum_keep, sum_last} = {got_data, got_keep, got_last};
            {sum_valid, sum_error} = {got_valid, got_error};
        end else begin
            {sum_data, sum_keep, sum_last} = {block_data, block_keep, block_last};
            {sum_valid, sum_error} = {block_valid && wants_block, 1'b0};
        end
    end
    assign sum_passes = sum_valid && sum_ready && wants_sum;

    ring_step_send #(.DEPTH(DEPTH)) send (
        .clk, .rst, .magnitude_bits(bits), .sends(to_tx), .stores(to_out), .s_axis_tdata(sum_data),
        .s_axis_tkeep(sum_keep), .s_axis_tvalid(sum_valid && wants_sum), .s_axis_tready(sum_ready),
        .s_axis_tlast(sum_last), .s_error(sum_error), .tx_axis_tdata, .tx_axis_tkeep, .tx_axis_tvalid, .tx_axis_tready,
        .tx_axis_tlast, .tx_axis_tuser, .out_axis_tdata, .out_axis_tkeep, .out_axis_tvalid, .out_axis_tready,
        .out_axis_tlast, .out_axis_tuser
    );
endmodule
