// One step of rht's Walsh-Hadamard transform inside a beat of sixteen words (docs/FORMAT.md, codec 5): words i and i +
// H become their sum and their difference. Where `pairs` is low, words pass unchanged. Six register stages, those of
// the adders.
module rht_butterflies #(
    parameter int H = 1
) (
    input  logic         clk,
    input  logic         enable,
    input  logic         pairs,
    input  logic [511:0] s_words,
    output logic [511:0] m_words
);
    localparam logic [31:0] NOTHING = 32'h80000000; // x + -0.0 is x, zeros of both signs included

    for (genvar i = 0; i < 16; i++) begin : lane
        logic [31:0] own, other, a, b;
        assign own = s_words[32*i +: 32];
        assign other = s_words[32*(i ^ H) +: 32];
        if ((i & H) == 0) begin : sum
            assign a = own;
            assign b = pairs ? other : NOTHING;
        end else begin : difference
            assign a = pairs ? other : own;
            assign b = pairs ? {!own[31], own[30:0]} : NOTHING;
        end
        float_add adder (.clk, .enable, .a, .b, .sum(m_words[32*i +: 32]));
    end
endmodule
