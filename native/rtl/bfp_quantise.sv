// Block floating point, first half of compression (Ma et al., arXiv:2204.10943, section IV-B; docs/FORMAT.md, codec 3):
// sixteen words a cycle become their shared exponent and a code of sign and magnitude each.
//
// Rules: q = round(|x| / 2^(E-127-(M-1))), half to even, at most 2^M - 1; the sign of q = 0 is 0. Words that are not
// kept count as zeros. The words leave beside their codes, for blocks with infinities or NaNs (E = 255), which are not
// coded. `flags` passes through. `enable` advances all six stages; M is magnitude_bits, 3 to 15, and accompanies its
// block.
module bfp_quantise #(
    parameter int FLAGS = 1
) (
    input  logic             clk,
    input  logic             enable,
    input  logic [511:0]     s_words,
    input  logic [15:0]      s_kept,
    input  logic [3:0]       s_magnitude_bits,
    input  logic [FLAGS-1:0] s_flags,
    output logic [511:0]     m_words,
    output logic [255:0]     m_codes,
    output logic [7:0]       m_shared,
    output logic [3:0]       m_magnitude_bits,
    output logic [FLAGS-1:0] m_flags
);
    localparam int STAGES = 6;

    // What accompanies a block, by stage.
    logic [STAGES:1][511:0]     words;
    logic [STAGES:1][3:0]       bits;
    logic [STAGES:1][FLAGS-1:0] flags;
    always_ff @(posedge clk) if (enable) begin
        for (int i = 0; i < 16; i++) words[1][32*i +: 32] <= s_kept[i] ? s_words[32*i +: 32] : 32'd0;
        words[STAGES:2] <= words[STAGES-1:1];
        bits <= {bits[STAGES-1:1], s_magnitude_bits};
        flags <= {flags[STAGES-1:1], s_flags};
    end
    assign m_words = words[STAGES];
    assign m_magnitude_bits = bits[STAGES];
    assign m_flags = flags[STAGES];

    // Stages 2 and 3: the largest exponent of each four words, then of all.
    logic [15:0][7:0] exponents;
    logic [3:0][7:0]  of_four;
    for (genvar i = 0; i < 16; i++) begin : word
        assign exponents[i] = words[1][32*i + 23 +: 8];
    end
    for (genvar i = 0; i < 4; i++) begin : group
        logic [7:0] low, high;
        assign low = exponents[4*i] > exponents[4*i+1] ? exponents[4*i] : exponents[4*i+1];
        assign high = exponents[4*i+2] > exponents[4*i+3] ? exponents[4*i+2] : exponents[4*i+3];
        always_ff @(posedge clk) if (enable) of_four[i] <= low > high ? low : high;
    end
    logic [7:0]           low, high;
    logic [STAGES:3][7:0] shared;
    assign low = of_four[0] > of_four[1] ? of_four[0] : of_four[1];
    assign high = of_four[2] > of_four[3] ? of_four[2] : of_four[3];
    always_ff @(posedge clk) if (enable) shared <= {shared[STAGES-1:3], low > high ? low : high};
    assign m_shared = shared[STAGES];

    for (genvar i = 0; i < 16; i++) begin : lane
        // Stage 4: by how much the mantissa goes right, beyond the 9 bits that it goes for M = 15 and the largest
        // exponent.
        logic [7:0] exponent;
        logic [8:0] distance;
        logic [4:0] shift4;
        assign exponent = words[3][32*i + 23 +: 8];
        assign distance = {1'b0, shared[3]} - {1'b0, exponent | {7'd0, exponent == 0}} + 9'd15 - {5'd0, bits[3]};
        always_ff @(posedge clk) if (enable) shift4 <= |distance[8:5] ? 5'd31 : distance[4:0];

        // Stage 5: shift. Below the magnitude are the bits that decide how it is rounded.
        logic [38:0] shifted;
        logic [15:0] magnitude5;
        logic        rest5;
        assign shifted = {words[4][32*i + 23 +: 8] != 0, words[4][32*i +: 23], 15'd0} >> shift4;
        always_ff @(posedge clk) if (enable) begin
            magnitude5 <= shifted[38:23];
            rest5 <= |shifted[22:0];
        end

        // Stage 6: round. What would need one bit more, 2^M, becomes the largest magnitude.
        logic [15:0] rounded, sign;
        assign rounded = {1'b0, magnitude5[15:1]} + {15'd0, magnitude5[0] && (rest5 || magnitude5[1])};
        assign sign = {15'd0, words[5][32*i + 31] && rounded != 0} << bits[5];
        always_ff @(posedge clk) if (enable)
            m_codes[16*i +: 16] <= (rounded[bits[5]] ? ~(16'hffff << bits[5]) : rounded) | sign;
    end
endmodule
