// Sum of two float32 words, in six pipeline stages: the adder of the smart NIC's reduction (Ma et al.,
// arXiv:2204.10943, section IV-A) and of the butterflies of rht (docs/FORMAT.md, codec 5).
//
// Rules: IEEE 754, round to nearest even, denormal operands and results kept. NaNs are those of the C's reductions
// (native/codecs/reduce.h): one NaN operand gives that one made quiet, two give the first. `inf - inf` gives
// INVALID: FFC00000 on x86, 7FC00000 on ARM. A difference is a sum whose second operand has its sign changed.
// `enable` advances all stages; six enabled cycles lead from operands to their sum.
module float_add #(
    parameter logic [31:0] INVALID = 32'hffc00000
) (
    input  logic        clk,
    input  logic        enable,
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic [31:0] sum
);
    /* verilator no_inline_module */ // one body of code for all adders

    // Stage 1: order the magnitudes, find the special results.
    logic        swapped;
    logic [31:0] greater;
    logic [30:0] lesser;
    assign swapped = b[30:0] > a[30:0];
    assign greater = swapped ? b : a;
    assign lesser = swapped ? a[30:0] : b[30:0];

    logic a_is_nan, b_is_nan, is_invalid;
    assign a_is_nan = &a[30:23] && a[22:0] != 0;
    assign b_is_nan = &b[30:23] && b[22:0] != 0;
    assign is_invalid = &a[30:23] && &b[30:23] && a[31] != b[31];

    logic        sign1, subtracts1, is_special1;
    logic [7:0]  exponent1, distance1;
    logic [23:0] greater1, lesser1;
    logic [31:0] special1;
    always_ff @(posedge clk) if (enable) begin
        sign1 <= greater[31];
        subtracts1 <= a[31] != b[31];
        // A denormal has the exponent of the least normal numbers, without their leading one.
        exponent1 <= greater[30:23] | {7'd0, greater[30:23] == 0};
        distance1 <= (greater[30:23] | {7'd0, greater[30:23] == 0}) - (lesser[30:23] | {7'd0, lesser[30:23] == 0});
        greater1 <= {greater[30:23] != 0, greater[22:0]};
        lesser1 <= {lesser[30:23] != 0, lesser[22:0]};
        is_special1 <= &greater[30:23];
        if (a_is_nan) special1 <= a | 32'h00400000;
        else if (b_is_nan) special1 <= b | 32'h00400000;
        else if (is_invalid) special1 <= INVALID;
        else special1 <= {greater[31], 8'hff, 23'd0};
    end

    // Stage 2: align the smaller operand; what falls out below guard and round bit is or-ed into the sticky bit.
    logic [4:0]  shift;
    logic [57:0] aligned;
    assign shift = |distance1[7:5] ? 5'd31 : distance1[4:0];
    assign aligned = {lesser1, 34'd0} >> shift;

    logic        sign2, subtracts2, is_special2;
    logic [7:0]  exponent2;
    logic [26:0] greater2, lesser2;
    logic [31:0] special2;
    always_ff @(posedge clk) if (enable) begin
        {sign2, subtracts2, is_special2, exponent2} <= {sign1, subtracts1, is_special1, exponent1};
        special2 <= special1;
        greater2 <= {greater1, 3'd0};
        lesser2 <= {aligned[57:32], |aligned[31:0]};
    end

    // Stage 3: add or subtract. A sum may be shifted up to the exponent of denormals, exponent 1: `marker` has a one
    // where the leading one of the mantissa of such a sum is, and is zero if that is below the mantissa.
    logic [7:0]  distance2;
    assign distance2 = exponent2 - 8'd1;

    logic        sign3, is_special3;
    logic [7:0]  exponent3;
    logic [26:0] marker3;
    logic [27:0] sum3;
    logic [31:0] special3;
    always_ff @(posedge clk) if (enable) begin
        {is_special3, exponent3} <= {is_special2, exponent2};
        special3 <= special2;
        marker3 <= |distance2[7:5] ? 27'd0 : 27'h4000000 >> distance2[4:0];
        sum3 <= subtracts2 ? {1'b0, greater2} - {1'b0, lesser2} : {1'b0, greater2} + {1'b0, lesser2};
        // A difference of zero is +0; zeros of equal sign are added and keep it.
        sign3 <= sign2 && !(subtracts2 && greater2 == lesser2);
    end

    // Stage 4: find the leading one, or the marker, where it is above, by halves. A sum that has carried goes right by
    // one.
    logic [4:0]  zeros;
    logic [31:1] of_32;
    logic [15:1] of_16;
    logic [7:1]  of_8;
    logic [3:1]  of_4;
    always_comb begin
        of_32 = {sum3[26:0] | marker3, 4'hf};
        zeros[4] = of_32[31:16] == 0;
        of_16 = zeros[4] ? of_32[15:1] : of_32[31:17];
        zeros[3] = of_16[15:8] == 0;
        of_8 = zeros[3] ? of_16[7:1] : of_16[15:9];
        zeros[2] = of_8[7:4] == 0;
        of_4 = zeros[2] ? of_8[3:1] : of_8[7:5];
        zeros[1] = of_4[3:2] == 0;
        zeros[0] = zeros[1] ? !of_4[1] : !of_4[3];
    end

    logic        sign4, is_special4;
    logic [4:0]  zeros4;
    logic [8:0]  exponent4;
    logic [26:0] sum4;
    logic [31:0] special4;
    always_ff @(posedge clk) if (enable) begin
        {sign4, is_special4} <= {sign3, is_special3};
        special4 <= special3;
        exponent4 <= {1'b0, exponent3} + {8'd0, sum3[27]};
        sum4 <= sum3[27] ? {sum3[27:2], |sum3[1:0]} : sum3[26:0];
        zeros4 <= sum3[27] ? 5'd0 : zeros;
    end

    // Stage 5: bring what was found to bit 26. Where that is the marker, the sum is a denormal.
    logic [26:0] normalised;
    assign normalised = sum4 << zeros4;

    logic        sign5, is_special5;
    logic [8:0]  exponent5;
    logic [25:0] sum5;
    logic [31:0] special5;
    always_ff @(posedge clk) if (enable) begin
        {sign5, is_special5} <= {sign4, is_special4};
        special5 <= special4;
        exponent5 <= normalised[26] ? exponent4 - {4'd0, zeros4} : 9'd0;
        sum5 <= normalised[25:0];
    end

    // Stage 6: round. A carry out of the mantissa increments the exponent, from denormal to normal and up to infinity.
    logic        rounds_up;
    logic [31:0] rounded;
    assign rounds_up = sum5[2] && (|sum5[1:0] || sum5[3]);
    assign rounded = {exponent5, sum5[25:3]} + {31'd0, rounds_up};
    always_ff @(posedge clk) if (enable) begin
        if (is_special5) sum <= special5;
        else if (rounded[31:23] >= 9'd255) sum <= {sign5, 8'hff, 23'd0};
        else sum <= {sign5, rounded[30:0]};
    end
endmodule
