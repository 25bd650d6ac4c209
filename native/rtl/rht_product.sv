// A constant float32, a level or threshold of rht between 2^-7 and 1, times a scale: the upper half of a positive,
// finite float32 (docs/FORMAT.md, codec 5). Rounded to nearest even, denormals included. Three register stages.
module rht_product #(
    parameter logic [31:0] FACTOR = 32'h3f800000
) (
    input  logic        clk,
    input  logic        enable,
    input  logic [14:0] scale,
    output logic [30:0] product
);
    localparam logic [23:0] MANTISSA = {1'b1, FACTOR[22:0]};

    // Stage 1: multiply the mantissas. The exponent is that of a product whose bit 31 is set.
    logic [31:0] product1;
    logic [9:0]  exponent1;
    always_ff @(posedge clk) if (enable) begin
        product1 <= {24'd0, scale[14:7] != 0, scale[6:0]} * {8'd0, MANTISSA};
        exponent1 <= {2'd0, scale[14:7] | {7'd0, scale[14:7] == 0}} + {2'd0, FACTOR[30:23]} - 10'd126;
    end

    // Stage 2: move the leading one to bit 31; a scale that is a denormal may leave up to eight zeros before it. Where
    // the exponent falls below 1, move right again, and keep whether a one was lost.
    logic [3:0]  zeros;
    logic [31:0] of_8, of_4, of_2, normalised;
    logic [9:0]  exponent;
    logic        is_denormal;
    logic [4:0]  right;
    logic [62:0] moved;
    always_comb begin
        zeros[3] = product1[31:24] == 0;
        of_8 = zeros[3] ? product1 << 8 : product1;
        zeros[2] = of_8[31:28] == 0;
        of_4 = zeros[2] ? of_8 << 4 : of_8;
        zeros[1] = of_4[31:30] == 0;
        of_2 = zeros[1] ? of_4 << 2 : of_4;
        zeros[0] = !of_2[31];
        normalised = zeros[0] ? of_2 << 1 : of_2;
    end
    assign exponent = exponent1 - {6'd0, zeros};
    assign is_denormal = exponent[9] || exponent == 0;
    assign right = is_denormal ? 5'd1 - exponent[4:0] : 5'd0; // 16 at most
    assign moved = 63'({normalised, 32'd0} >> right);

    logic [22:0] mantissa2;
    logic        half2, rest2;
    logic [7:0]  exponent2;
    always_ff @(posedge clk) if (enable) begin
        mantissa2 <= moved[62:40];
        half2 <= moved[39];
        rest2 <= |moved[38:0];
        exponent2 <= is_denormal ? 8'd0 : exponent[7:0];
    end

    // Stage 3: round. A carry increments the exponent.
    always_ff @(posedge clk) if (enable)
        product <= {exponent2, mantissa2} + {30'd0, half2 && (rest2 || mantissa2[0])};
endmodule
