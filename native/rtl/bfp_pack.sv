// Block floating point, the layout of a block (docs/FORMAT.md, codec 3): an exponent byte, then sixteen codes of 1 + M
// bits, the first from bit 0 up, or nothing (E = 0), or the sixteen words (E = 255). One register stage.
module bfp_pack (
    input  logic         clk,
    input  logic         enable,
    input  logic [511:0] s_words,
    input  logic [255:0] s_codes,
    input  logic [7:0]   s_shared,
    input  logic [3:0]   s_magnitude_bits,
    input  logic         s_empty,
    output logic [519:0] m_chunk,
    output logic [6:0]   m_bytes
);
    logic [15:0][255:0] packed_codes; // by M
    for (genvar m = 0; m < 16; m++) begin : width
        if (m < 3) begin : none
            assign packed_codes[m] = '0;
        end else begin : some
            logic [16*(m+1)-1:0] adjacent;
            for (genvar i = 0; i < 16; i++) begin : lane
                assign adjacent[(m+1)*i +: m+1] = s_codes[16*i +: m+1];
            end
            assign packed_codes[m] = 256'(adjacent);
        end
    end

    always_ff @(posedge clk) if (enable) begin
        m_chunk <= '0;
        if (!s_empty) begin
            m_chunk[7:0] <= s_shared;
            if (s_shared == 8'd255) m_chunk[519:8] <= s_words;
            else if (s_shared != 0) m_chunk[263:8] <= packed_codes[s_magnitude_bits];
        end
        if (s_empty) m_bytes <= 7'd0;
        else if (s_shared == 0) m_bytes <= 7'd1;
        else if (s_shared == 8'd255) m_bytes <= 7'd65;
        else m_bytes <= {2'd0, s_magnitude_bits, 1'b0} + 7'd3;
    end
endmodule
