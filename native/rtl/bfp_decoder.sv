// BFP decompression engine of the AI smart NIC (Ma et al., arXiv:2204.10943, section IV-B and Table I; docs/FORMAT.md,
// codec 3): the bytes of a body in, float32 words out, sixteen lanes, one 512-bit beat a cycle.
//
// Rules: a packet of one body becomes a packet of `words` words, those of native/codecs/bfp.c. magnitude_bits (M, 3 to
// 15) and words are taken with a packet's first beat. m_tuser beside m_tlast is an error: a body that ends early or
// late, padding that is not zero, or a tkeep that is no packet's. A malformed body ends where its error is found, maybe
// with a null beat (m_tkeep is zero), and what is left of it is dropped. Between packets the output pauses at most for
// two cycles.
module bfp_decoder (
    input  logic         clk,
    input  logic         rst_n,
    input  logic [3:0]   magnitude_bits,
    input  logic [31:0]  words,
    input  logic [511:0] s_tdata,
    input  logic [63:0]  s_tkeep,
    input  logic         s_tvalid,
    output logic         s_tready,
    input  logic         s_tlast,
    output logic [511:0] m_tdata,
    output logic [63:0]  m_tkeep,
    output logic         m_tvalid,
    input  logic         m_tready,
    output logic         m_tlast,
    output logic         m_tuser
);
    logic         starts, ended, is_bad, take, drop;
    logic [519:0] window;
    logic [7:0]   count;
    logic [6:0]   bytes;
    body_window #(.TAKE(65)) body (
        .clk, .rst_n, .s_tdata, .s_tkeep, .s_tvalid, .s_tready, .s_tlast, .starts, .window, .count, .ended, .is_bad,
        .take, .take_bytes(bytes), .drop
    );

    // The packet at the window: the words and code widths of its blocks, and whether it is read or only dropped.
    logic        reads, drains;
    logic [3:0]  bits;
    logic [31:0] left;

    // The block at the window. The last one is held back until the body's end is in sight.
    logic       enable, is_whole, is_last, is_cut, is_long, puts, ends;
    logic [4:0] block_words;
    always_comb begin
        if (left == 0) bytes = 7'd0;
        else if (window[7:0] == 8'd0) bytes = 7'd1;
        else if (window[7:0] == 8'd255) bytes = 7'd65;
        else bytes = {2'd0, bits, 1'b0} + 7'd3;
    end
    assign is_last = left <= 32'd16;
    assign block_words = is_last ? left[4:0] : 5'd16;
    assign is_whole = count >= {1'b0, bytes} && (count != 0 || left == 0);
    assign is_cut = ended && !is_whole;
    assign is_long = is_last && is_whole && count != {1'b0, bytes};
    assign puts = reads && (is_cut || (is_whole && (!is_last || is_long || ended)));
    assign ends = is_cut || is_last;
    assign take = enable && puts && !ends;
    assign drop = drains || (enable && puts && ends);

    always_ff @(posedge clk) begin
        if (starts) bits <= magnitude_bits;
        if (starts) left <= words;
        else if (take) left <= left - 32'd16;
        if (!rst_n) {reads, drains} <= 2'b00;
        else begin
            if (starts) reads <= 1'b1;
            else if (enable && puts && ends) reads <= 1'b0;
            if (enable && puts && ends && !ended) drains <= 1'b1;
            else if (ended) drains <= 1'b0;
        end
    end

    // Stage 1: the block's bytes; 2: its codes; 3 and 4: its words.
    logic [4:1]   valid;
    logic [7:0]   shared1, shared2;
    logic [511:0] bytes1, words2;
    logic [255:0] codes2;
    logic [3:0]   bits1, bits2;
    logic [4:0]   count1, count2, count4;
    logic         last1, error1, last2, error2, last4, error4, padded2;
    assign enable = !valid[4] || m_tready;
    always_ff @(posedge clk) begin
        if (enable) begin
            {bytes1, shared1} <= window;
            bits1 <= bits;
            count1 <= is_cut ? 5'd0 : block_words;
            last1 <= ends;
            error1 <= is_cut || is_long || is_bad;
        end
        if (!rst_n) valid <= '0;
        else if (enable) valid <= {valid[3:1], puts};
    end
    bfp_unpack #(.FLAGS(2)) unpack (
        .clk, .enable, .s_bytes(bytes1), .s_shared(shared1), .s_magnitude_bits(bits1), .s_count(count1),
        .s_flags({last1, error1}), .m_words(words2), .m_codes(codes2), .m_shared(shared2), .m_magnitude_bits(bits2),
        .m_count(count2), .m_padded(padded2), .m_flags({last2, error2})
    );
    bfp_restore #(.FLAGS(7)) restore (
        .clk, .enable, .s_words(words2), .s_codes(codes2), .s_shared(shared2), .s_magnitude_bits(bits2),
        .s_flags({count2, last2, error2 || (padded2 && count2 != 0)}), .m_words(m_tdata),
        .m_flags({count4, last4, error4})
    );
    for (genvar i = 0; i < 16; i++) begin : word
        assign m_tkeep[4*i +: 4] = {4{count4 > 5'(i)}};
    end
    assign m_tvalid = valid[4];
    assign m_tlast = last4;
    assign m_tuser = last4 && error4;
endmodule
