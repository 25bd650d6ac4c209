// First-in first-out buffer in block RAM: one word in and one out in each cycle, DEPTH words (a power of two) and one
// more in the output register. A word leaves two cycles after it entered at the earliest.
module stream_fifo #(
    parameter int WIDTH = 578,
    parameter int DEPTH = 512
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [WIDTH-1:0] s_data,
    input  logic             s_valid,
    output logic             s_ready,
    output logic [WIDTH-1:0] m_data,
    output logic             m_valid,
    input  logic             m_ready
);
    localparam int BITS = $clog2(DEPTH);

    // Positions count modulo twice the depth, so that full and empty differ.
    logic [WIDTH-1:0] memory[DEPTH];
    logic [BITS:0]    written, taken;
    logic             takes;
    assign s_ready = written != (taken ^ {1'b1, {BITS{1'b0}}});
    assign takes = written != taken && (!m_valid || m_ready);
    always_ff @(posedge clk) begin
        if (s_valid && s_ready) memory[written[BITS-1:0]] <= s_data;
        if (takes) m_data <= memory[taken[BITS-1:0]];
        if (rst) begin
            {written, taken} <= '0;
            m_valid <= 1'b0;
        end else begin
            written <= written + (BITS+1)'(s_valid && s_ready);
            taken <= taken + (BITS+1)'(takes);
            if (takes) m_valid <= 1'b1;
            else if (m_ready) m_valid <= 1'b0;
        end
    end
endmodule
