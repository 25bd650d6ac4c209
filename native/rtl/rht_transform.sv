// Walsh-Hadamard transform of rht (docs/FORMAT.md, codec 5, step 2), without signs and scaling: seven butterfly stages,
// a beat of sixteen words a cycle, with the additions in the order of native/codecs/rht.c.
//
// Rules: a block of 2^s_log words (7 to 3) enters as beats without a pause, with their numbers in s_index; one of eight
// words has the upper half of its beat to itself. LATENCY enabled cycles lead through: six for each stage's adders, and
// 1, 2 and 4 for the beats that stages between beats wait for.
module rht_transform #(
    parameter int LATENCY = 49
) (
    input  logic         clk,
    input  logic         enable,
    input  logic [511:0] s_words,
    input  logic [2:0]   s_index,
    input  logic [2:0]   s_log,
    output logic [511:0] m_words
);
    localparam int ADD = 6;
    localparam int IN_8 = 3 * ADD, IN_16 = IN_8 + ADD, IN_32 = IN_16 + 1 + ADD, IN_64 = IN_32 + 2 + ADD;

    logic [LATENCY-ADD:1][2:0] index, log;
    always_ff @(posedge clk) if (enable) begin
        index <= {index[LATENCY-ADD-1:1], s_index};
        log <= {log[LATENCY-ADD-1:1], s_log};
    end

    logic [511:0] of_1, of_2, of_4, of_8, of_16, of_32;
    rht_butterflies #(.H(1)) stage_1 (.clk, .enable, .pairs(1'b1), .s_words, .m_words(of_1));
    rht_butterflies #(.H(2)) stage_2 (.clk, .enable, .pairs(1'b1), .s_words(of_1), .m_words(of_2));
    rht_butterflies #(.H(4)) stage_4 (.clk, .enable, .pairs(1'b1), .s_words(of_2), .m_words(of_4));
    rht_butterflies #(.H(8)) stage_8 (.clk, .enable, .pairs(log[IN_8] > 3'd3), .s_words(of_4), .m_words(of_8));
    rht_exchange #(.D(1)) stage_16 (
        .clk, .enable, .pairs(log[IN_16+1] > 3'd4), .is_second(index[IN_16+1][0]), .s_words(of_8), .m_words(of_16)
    );
    rht_exchange #(.D(2)) stage_32 (
        .clk, .enable, .pairs(log[IN_32+2] > 3'd5), .is_second(index[IN_32+2][1]), .s_words(of_16), .m_words(of_32)
    );
    rht_exchange #(.D(4)) stage_64 (
        .clk, .enable, .pairs(log[IN_64+4] > 3'd6), .is_second(index[IN_64+4][2]), .s_words(of_32), .m_words
    );
endmodule
