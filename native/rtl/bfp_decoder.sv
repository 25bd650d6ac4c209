// BFP decompression engine of the AI smart NIC (Ma et al., arXiv:2204.10943, section IV-B and Table I; docs/FORMAT.md,
// codec 3): the bytes of a body in, float32 words out, sixteen lanes, one 512-bit beat a cycle.
//
// Rules: a packet of one body becomes a packet of `words` words, those of native/codecs/bfp.c. magnitude_bits (M, 3 to
// 15) and words are taken with a packet's first beat. m_axis_tuser beside m_axis_tlast is an error: a body that ends
// early or late, padding that is not zero, or a tkeep that is no packet's. A malformed body ends where its error is
// found, maybe with a null beat (m_axis_tkeep is zero), and what is left of it is dropped. At the last beat is_late
// says that the one error is bytes behind the words, and consumed how many bytes the words took. Between packets the
// output pauses at most for three cycles.
module bfp_decoder (
    input  logic         clk,
    input  logic         rst,
    input  logic [3:0]   magnitude_bits,
    input  logic [31:0]  words,
    input  logic [511:0] s_axis_tdata,
    input  logic [63:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    output logic [511:0] m_axis_tdata,
    output logic [63:0]  m_axis_tkeep,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic         m_axis_tlast,
    output logic         m_axis_tuser,
    output logic         is_late,
    output logic [31:0]  consumed
);
    logic         starts, ended, is_bad, take, drop;
    logic [519:0] window;
    logic [7:0]   count;
    logic [6:0]   take_bytes;
    body_window #(.TAKE(65)) body (
        .clk, .rst, .s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tready, .s_axis_tlast, .starts, .window,
        .count, .ended, .is_bad, .take, .take_bytes, .drop
    );

    // The packet at the window: the words and code widths of its blocks, and whether it is read or only dropped. A
    // block's exponent is read with the bytes of the block before it, where it is here, so that sizes are known in
    // time.
    logic        reads, drains, has_exponent;
    logic [3:0]  bits;
    logic [31:0] left;
    logic [7:0]  exponent, exponent_of_next;

    // The block at the window. The last one is held back until the body's end is in sight.
    logic       enable, is_here, is_last, is_known, is_cut, is_long, puts, ends, reads_exponent, reads_now, reads_next;
    logic [6:0] bytes;
    always_comb begin
        if (left == 0 || exponent == 8'd0) bytes = 7'd0;
        else if (exponent == 8'd255) bytes = 7'd64;
        else bytes = {2'd0, bits, 1'b0} + 7'd2;
    end
    assign reads_exponent = left != 0 && !has_exponent;
    assign is_last = left[31:5] == 0 && (!left[4] || left[3:0] == 0); // 16 words or fewer
    assign is_here = !reads_exponent && count >= {1'b0, bytes};
    assign is_known = !is_last || ended || count > {1'b0, bytes};
    assign is_cut = ended && (reads_exponent ? count == 0 : !is_here);
    assign is_long = is_last && count != {1'b0, bytes};
    assign puts = reads && (is_cut || (is_here && is_known));
    assign ends = is_cut || is_last;
    assign reads_next = !is_last && count > {1'b0, bytes};
    assign reads_now = reads && reads_exponent && count != 0;
    assign take = enable && ((puts && !ends) || reads_now);
    assign take_bytes = reads_exponent ? 7'd1 : bytes + {6'd0, reads_next};
    assign drop = drains || (enable && puts && ends);
    always_comb begin
        if (reads_exponent || exponent == 8'd0) exponent_of_next = window[7:0];
        else if (exponent == 8'd255) exponent_of_next = window[519:512];
        else exponent_of_next = 8'(window[271:0] >> {{1'b0, bits} + 5'd1, 4'd0});
    end

    // Bytes of the blocks before this one, a cycle later, so that they do not lengthen the path of sizes.
    logic [6:0]  step;
    logic [31:0] passed;
    always_ff @(posedge clk) begin
        step <= take ? take_bytes : 7'd0;
        passed <= starts ? 32'd0 : passed + {25'd0, step};
    end

    always_ff @(posedge clk) begin
        if (starts) bits <= magnitude_bits;
        if (starts) left <= words;
        else if (take && !reads_now) left[31:4] <= left[31:4] - 28'd1;
        if (take) exponent <= exponent_of_next;
        if (rst) {reads, drains, has_exponent} <= 3'b000;
        else begin
            if (starts) reads <= 1'b1;
            else if (enable && puts && ends) reads <= 1'b0;
            if (enable && puts && ends && !ended) drains <= 1'b1;
            else if (ended) drains <= 1'b0;
            if (enable && puts && ends) has_exponent <= 1'b0;
            else if (take) has_exponent <= reads_now || reads_next;
        end
    end

    // Stage 1: the block's bytes; 2: its codes; 3 and 4: its words.
    logic [4:1]   valid;
    logic [7:0]   shared1, shared2;
    logic [511:0] bytes1, words2;
    logic [255:0] codes2;
    logic [3:0]   bits1, bits2;
    logic [4:0]   count1, count2, count4;
    logic         last1, error1, late1, last2, error2, late2, last4, error4, late4, padded2;
    logic [31:0]  consumed1, consumed2;
    assign enable = !valid[4] || m_axis_tready;
    always_ff @(posedge clk) begin
        if (enable) begin
            bytes1 <= window[511:0];
            shared1 <= exponent;
            bits1 <= bits;
            count1 <= is_cut ? 5'd0 : is_last ? left[4:0] : 5'd16;
            last1 <= ends;
            error1 <= is_cut || is_bad;
            late1 <= is_long;
            consumed1 <= passed + {25'd0, step} + {25'd0, bytes};
        end
        if (rst) valid <= '0;
        else if (enable) valid <= {valid[3:1], puts};
    end
    bfp_unpack #(.FLAGS(35)) unpack (
        .clk, .enable, .s_bytes(bytes1), .s_shared(shared1), .s_magnitude_bits(bits1), .s_count(count1),
        .s_flags({last1, error1, late1, consumed1}), .m_words(words2), .m_codes(codes2), .m_shared(shared2),
        .m_magnitude_bits(bits2), .m_count(count2), .m_padded(padded2), .m_flags({last2, error2, late2, consumed2})
    );
    bfp_restore #(.FLAGS(40)) restore (
        .clk, .enable, .s_words(words2), .s_codes(codes2), .s_shared(shared2), .s_magnitude_bits(bits2),
        .s_flags({count2, last2, error2 || (padded2 && count2 != 0), late2, consumed2}), .m_words(m_axis_tdata),
        .m_flags({count4, last4, error4, late4, consumed})
    );
    for (genvar i = 0; i < 16; i++) begin : word
        assign m_axis_tkeep[4*i +: 4] = {4{count4 > 5'(i)}};
    end
    assign m_axis_tvalid = valid[4];
    assign m_axis_tlast = last4;
    assign m_axis_tuser = last4 && (error4 || late4);
    assign is_late = last4 && late4 && !error4;
endmodule
