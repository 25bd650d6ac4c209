// The way out of the ring step (Ma et al., arXiv:2204.10943, Fig. 3a): compresses a block once, for the Tx FIFO and, as
// what it decodes to, for the output FIFO.
//
// Rules: `sends` and `stores` are taken with each beat and constant over a packet. A beat leaves the quantiser when
// both ways take it, so that one that is held back holds back the other once its FIFO is full. A packet that is neither
// sent nor stored is dropped.
module ring_step_send #(
    parameter int DEPTH = 512
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [3:0]   magnitude_bits,
    input  logic         sends,
    input  logic         stores,
    input  logic [511:0] s_axis_tdata,
    input  logic [63:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    input  logic         s_error,
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
    localparam int STAGES = 6; // of bfp_quantise
    localparam int FLAGS = 16 + 4;

    // Quantise.
    logic [STAGES:1] valid;
    logic            enable, packs, restores;
    logic [15:0]     kept, code_kept;
    logic            is_bad, code_last, code_error, code_sends, code_stores;
    logic [511:0]    words;
    logic [255:0]    codes;
    logic [7:0]      shared;
    logic [3:0]      bits;
    assign enable = !valid[STAGES] || (packs && restores);
    assign s_axis_tready = enable;
    words_kept keep_of_words (.keep(s_axis_tkeep), .last(s_axis_tlast), .kept, .is_bad);
    bfp_quantise #(.FLAGS(FLAGS)) quantise (
        .clk, .enable, .s_words(s_axis_tdata), .s_kept(kept), .s_magnitude_bits(magnitude_bits),
        .s_flags({kept, s_axis_tlast, s_error || is_bad, sends, stores}), .m_words(words), .m_codes(codes),
        .m_shared(shared), .m_magnitude_bits(bits),
        .m_flags({code_kept, code_last, code_error, code_sends, code_stores})
    );
    always_ff @(posedge clk) begin
        if (rst) valid <= '0;
        else if (enable) valid <= {valid[STAGES-1:1], s_axis_tvalid};
    end

    // To the next node: pack, Tx FIFO.
    logic         chunk_valid, chunk_ready, chunk_last, chunk_error;
    logic [519:0] chunk;
    logic [6:0]   chunk_bytes;
    logic [511:0] body_data;
    logic [63:0]  body_keep;
    logic         body_valid, body_ready, body_last, body_error;
    assign packs = !chunk_valid || chunk_ready;
    always_ff @(posedge clk) begin
        if (packs) {chunk_last, chunk_error} <= {code_last, code_error};
        if (rst) chunk_valid <= 1'b0;
        else if (packs) chunk_valid <= valid[STAGES] && code_sends && restores;
    end
    bfp_pack pack (
        .clk, .enable(packs), .s_words(words), .s_codes(codes), .s_shared(shared), .s_magnitude_bits(bits),
        .s_empty(!code_kept[0]), .m_chunk(chunk), .m_bytes(chunk_bytes)
    );
    body_packer #(.CHUNK(65)) packer (
        .clk, .rst, .s_chunk(chunk), .s_bytes({1'b0, chunk_bytes}), .s_valid(chunk_valid), .s_ready(chunk_ready),
        .s_last(chunk_last), .s_error(chunk_error), .m_axis_tdata(body_data), .m_axis_tkeep(body_keep),
        .m_axis_tvalid(body_valid), .m_axis_tready(body_ready), .m_axis_tlast(body_last), .m_axis_tuser(body_error)
    );
    stream_fifo #(.WIDTH(578), .DEPTH(DEPTH)) tx_fifo (
        .clk, .rst, .s_data({body_data, body_keep, body_last, body_error}), .s_valid(body_valid), .s_ready(body_ready),
        .m_data({tx_axis_tdata, tx_axis_tkeep, tx_axis_tlast, tx_axis_tuser}), .m_valid(tx_axis_tvalid),
        .m_ready(tx_axis_tready)
    );

    // To the local memory: restore, output FIFO. An error of the block is in its last beat.
    logic [1:0]   word_valid;
    logic         word_ready, word_last, word_error;
    logic [15:0]  word_kept;
    logic [63:0]  word_keep;
    logic [511:0] word_data;
    assign restores = !word_valid[1] || word_ready;
    always_ff @(posedge clk) begin
        if (rst) word_valid <= 2'b00;
        else if (restores) word_valid <= {word_valid[0], valid[STAGES] && code_stores && packs};
    end
    bfp_restore #(.FLAGS(18)) restore (
        .clk, .enable(restores), .s_words(words), .s_codes(codes), .s_shared(shared), .s_magnitude_bits(bits),
        .s_flags({code_kept, code_last, code_error}), .m_words(word_data), .m_flags({word_kept, word_last, word_error})
    );
    for (genvar i = 0; i < 16; i++) begin : keep
        assign word_keep[4*i +: 4] = {4{word_kept[i]}};
    end
    stream_fifo #(.WIDTH(578), .DEPTH(DEPTH)) output_fifo (
        .clk, .rst, .s_data({word_data, word_keep, word_last, word_error && word_last}), .s_valid(word_valid[1]),
        .s_ready(word_ready), .m_data({out_axis_tdata, out_axis_tkeep, out_axis_tlast, out_axis_tuser}),
        .m_valid(out_axis_tvalid), .m_ready(out_axis_tready)
    );
endmodule
