// Decompression Block (DB) of one lane: Li et al. (MICRO 2018), Algorithm 3 and Fig. 10, codec 1 of docs/FORMAT.md.
// A vector of 8 or 16 bits is sign and magnitude in steps of 2^-7 or 2^-15. Combinational.
module inceptionn_decompress_block (
    input logic [1:0] tag,
    input logic [31:0] vector,  // bits above the tag's size are ignored
    output logic [31:0] word
);
    wire is_8 = tag == 2'b01;
    wire [31:0] value;
    fixed_to_float convert (
        .sign(is_8 ? vector[7] : vector[15]),
        .magnitude(is_8 ? {vector[6:0], 8'd0} : vector[14:0]),
        .exponent_of_one(8'd112),
        .word(value)
    );
    assign word = tag == 2'b00 ? 32'd0 : tag == 2'b11 ? vector : value;
endmodule
