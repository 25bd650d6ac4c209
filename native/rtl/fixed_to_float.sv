// A magnitude of 15 bits becomes binary32: Li et al. (MICRO 2018), Algorithm 3. The first one of the magnitude becomes
// the leading one, what follows it the mantissa. A magnitude without a one is +0.0, whatever its sign. Combinational.
module fixed_to_float (
    input logic sign,
    input logic [14:0] magnitude,
    input logic [7:0] exponent_of_one,  // exponent field of magnitude 1
    output logic [31:0] word
);
    logic [14:0] by_8, by_4, by_2, by_1;
    logic [3:0] zeros;  // before the first one
    always_comb begin
        zeros[3] = magnitude[14:7] == 8'd0;
        by_8 = zeros[3] ? {magnitude[6:0], 8'd0} : magnitude;
        zeros[2] = by_8[14:11] == 4'd0;
        by_4 = zeros[2] ? {by_8[10:0], 4'd0} : by_8;
        zeros[1] = by_4[14:13] == 2'd0;
        by_2 = zeros[1] ? {by_4[12:0], 2'd0} : by_4;
        zeros[0] = !by_2[14];
        by_1 = zeros[0] ? {by_2[13:0], 1'b0} : by_2;
        word = by_1[14] ? {sign, exponent_of_one + 8'd14 - {4'd0, zeros}, by_1[13:0], 9'd0} : 32'd0;
    end
endmodule
