// A float32 word times 2^-halvings, up to 2^-4, rounded to nearest even where the result is a denormal; infinities and
// NaNs stay as they are. One register stage.
module float_halve (
    input  logic        clk,
    input  logic        enable,
    input  logic [31:0] a,
    input  logic [2:0]  halvings,
    output logic [31:0] q
);
    // A denormal result has the mantissa, its leading one included, moved right by as much as the exponent would fall
    // below 1; the lowest bits of the exponent tell, as it is small then. The bits that leave decide how it is rounded;
    // a carry makes it the least normal number.
    logic [2:0]  exponent;
    logic [2:0]  shift;
    logic [27:0] moved;
    logic        rounds_up;
    assign exponent = a[25:23] | {2'd0, a[30:23] == 0};
    assign shift = halvings + 3'd1 - exponent;
    assign moved = {a[30:23] != 0, a[22:0], 4'd0} >> shift;
    assign rounds_up = moved[3] && (|moved[2:0] || moved[4]);
    always_ff @(posedge clk) if (enable) begin
        if (&a[30:23]) q <= a;
        else if (a[30:23] > {5'd0, halvings}) q <= {a[31], a[30:23] - {5'd0, halvings}, a[22:0]};
        else q <= {a[31], 7'd0, moved[27:4] + {23'd0, rounds_up}};
    end
endmodule
