// Block floating point, the first half of decompression (docs/FORMAT.md, codec 3): the bytes behind a block's exponent
// become sixteen codes of sign and magnitude; where the block has its words, these. Checks that the words which are not
// delivered are zeros. One register stage.
module bfp_unpack #(
    parameter int FLAGS = 1
) (
    input  logic             clk,
    input  logic             enable,
    input  logic [511:0]     s_bytes,
    input  logic [7:0]       s_shared,
    input  logic [3:0]       s_magnitude_bits,
    input  logic [4:0]       s_count,
    input  logic [FLAGS-1:0] s_flags,
    output logic [511:0]     m_words,
    output logic [255:0]     m_codes,
    output logic [7:0]       m_shared,
    output logic [3:0]       m_magnitude_bits,
    output logic [4:0]       m_count,
    output logic             m_padded,
    output logic [FLAGS-1:0] m_flags
);
    logic [15:0][255:0] unpacked; // by M
    for (genvar m = 0; m < 16; m++) begin : width
        for (genvar i = 0; i < 16; i++) begin : lane
            if (m < 3) begin : none
                assign unpacked[m][16*i +: 16] = '0;
            end else begin : some
                assign unpacked[m][16*i +: 16] = 16'(s_bytes[(m+1)*i +: m+1]);
            end
        end
    end

    // Padding is malformed unless it is zero, signs included; a block with E = 0 has none.
    logic [255:0] codes;
    logic [15:0]  padded;
    assign codes = unpacked[s_magnitude_bits];
    for (genvar i = 0; i < 16; i++) begin : lane
        assign padded[i] = s_count <= 5'(i)
            && (s_shared == 8'd255 ? s_bytes[32*i +: 32] != 0 : s_shared != 0 && codes[16*i +: 16] != 0);
    end

    always_ff @(posedge clk) if (enable) begin
        m_words <= s_bytes;
        m_codes <= codes;
        m_shared <= s_shared;
        m_magnitude_bits <= s_magnitude_bits;
        m_count <= s_count;
        m_padded <= |padded;
        m_flags <= s_flags;
    end
endmodule
