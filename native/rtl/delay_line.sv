// Words that wait in memory for what is computed from them: `q` is `d` of DEPTH enabled cycles before. A register a
// stage would do the same; memory takes a fraction of the area where stages are many. DEPTH is at least 2.
module delay_line #(
    parameter int WIDTH = 512,
    parameter int DEPTH = 8
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             enable,
    input  logic [WIDTH-1:0] d,
    output logic [WIDTH-1:0] q
);
    localparam int BITS = $clog2(DEPTH);

    logic [WIDTH-1:0] memory[DEPTH];
    logic [BITS-1:0]  at, next;
    assign next = at == BITS'(DEPTH - 1) ? '0 : at + 1'b1;
    always_ff @(posedge clk) begin
        if (enable) begin
            memory[at] <= d;
            q <= memory[next];
        end
        if (rst) at <= '0;
        else if (enable) at <= next;
    end
endmodule
