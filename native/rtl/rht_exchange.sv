// One step of rht's Walsh-Hadamard transform between beats (docs/FORMAT.md, codec 5): beats i and i + D of a block,
// words 16 D apart, become their sums and their differences.
//
// Rules: a block's beats follow each other without a pause. `pairs` and `is_second` tell of the beat that entered D
// cycles before: whether its block has beats at this distance, and whether it is the second of its pair. Sixteen adders
// are busy in every cycle: the sum of a pair when its second beat enters, the difference D cycles later. D + 6 register
// stages.
module rht_exchange #(
    parameter int D = 1
) (
    input  logic         clk,
    input  logic         enable,
    input  logic         pairs,
    input  logic         is_second,
    input  logic [511:0] s_words,
    output logic [511:0] m_words
);
    localparam logic [31:0] NOTHING = 32'h80000000; // x + -0.0 is x, zeros of both signs included

    logic [2*D:1][511:0] held; // the beat that entered so many cycles before
    always_ff @(posedge clk) if (enable) held <= {held[2*D-1:1], s_words};

    for (genvar i = 0; i < 16; i++) begin : lane
        logic [31:0] coming, own, other, a, b;
        assign coming = s_words[32*i +: 32];
        assign own = held[D][32*i +: 32];
        assign other = held[2*D][32*i +: 32];
        assign a = pairs && is_second ? other : own;
        assign b = !pairs ? NOTHING : is_second ? {!own[31], own[30:0]} : coming;
        float_add adder (.clk, .enable, .a, .b, .sum(m_words[32*i +: 32]));
    end
endmodule
