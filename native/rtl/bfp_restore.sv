// Block floating point, second half of decompression (Ma et al., arXiv:2204.10943, section IV-B; docs/FORMAT.md, codec
// 3): sixteen codes of sign and magnitude become words, q * 2^(E-127-(M-1)), exactly, denormals included.
//
// Rules: a block with E = 255 has its words beside the codes, and keeps them; with E = 0 it is zero. A code whose
// magnitude is zero is +0, whatever its sign. `flags` passes through. `enable` advances both stages.
module bfp_restore #(
    parameter int FLAGS = 1
) (
    input  logic             clk,
    input  logic             enable,
    input  logic [511:0]     s_words,
    input  logic [255:0]     s_codes,
    input  logic [7:0]       s_shared,
    input  logic [3:0]       s_magnitude_bits,
    input  logic [FLAGS-1:0] s_flags,
    output logic [511:0]     m_words,
    output logic [FLAGS-1:0] m_flags
);
    logic [511:0]     words1;
    logic [FLAGS-1:0] flags1;
    logic             as_they_are1;
    always_ff @(posedge clk) if (enable) begin
        words1 <= s_words;
        as_they_are1 <= s_shared == 8'd255;
        {m_flags, flags1} <= {flags1, s_flags};
    end

    logic [14:0] mask;
    assign mask = ~(15'h7fff << s_magnitude_bits);

    for (genvar i = 0; i < 16; i++) begin : lane
        // Stage 1: the leading one of the magnitude goes to bit 14; the exponent field follows from where it was.
        logic [14:0] magnitude, of_16, of_8, of_4;
        logic [3:0]  zeros;
        logic        sign1, is_zero1;
        logic [14:0] mantissa, mantissa1;
        logic [9:0]  exponent1;
        assign magnitude = s_codes[16*i +: 15] & mask;
        always_comb begin
            zeros[3] = magnitude[14:7] == 0;
            of_16 = zeros[3] ? magnitude << 8 : magnitude;
            zeros[2] = of_16[14:11] == 0;
            of_8 = zeros[2] ? of_16 << 4 : of_16;
            zeros[1] = of_8[14:13] == 0;
            of_4 = zeros[1] ? of_8 << 2 : of_8;
            zeros[0] = !of_4[14];
            mantissa = zeros[0] ? of_4 << 1 : of_4;
        end
        always_ff @(posedge clk) if (enable) begin
            sign1 <= |(s_codes[16*i +: 16] >> s_magnitude_bits);
            is_zero1 <= magnitude == 0 || s_shared == 0;
            mantissa1 <= mantissa;
            exponent1 <= {2'd0, s_shared} + 10'd15 - {6'd0, zeros} - {6'd0, s_magnitude_bits};
        end

        // Stage 2: an exponent field of less than 1 makes a denormal.
        logic [22:0] denormal;
        logic [3:0]  below;
        assign below = 4'd0 - exponent1[3:0];
        assign denormal = {mantissa1, 8'd0} >> below;
        always_ff @(posedge clk) if (enable) begin
            if (as_they_are1) m_words[32*i +: 32] <= words1[32*i +: 32];
            else if (is_zero1) m_words[32*i +: 32] <= 32'd0;
            else if (exponent1[9] || exponent1 == 0) m_words[32*i +: 32] <= {sign1, 8'd0, denormal};
            else m_words[32*i +: 32] <= {sign1, exponent1[7:0], mantissa1[13:0], 9'd0};
        end
    end
endmodule
