// Compression Block of codec 2 (`bounded`, docs/FORMAT.md): the tags and vectors of Li et al. (MICRO 2018), Fig. 9, with
// a bound that holds. q = round(|x| * 2^(k-1)), half to even: the significand is shifted right, one guard bit and a
// sticky bit decide the rounding. Words above 32767 steps, infinities and NaNs keep their 32 bits. Bits of `vector`
// above the tag's size are zero. Combinational.
module bounded_compress_block (
    input logic [7:0] top,  // 142 - k: the largest exponent field of a word that may have less than 32 bits
    input logic [31:0] word,
    output logic [1:0] tag,
    output logic [31:0] vector
);
    wire [7:0] exponent = word[30:23];
    wire [7:0] shift = top - exponent;  // 0 to 15 where it matters
    wire is_large = exponent > top;
    wire is_small = !is_large && shift > 8'd15;

    wire [38:0] shifted = {1'b1, word[22:0], 15'd0} >> shift[3:0];
    wire guard = shifted[23];
    wire sticky = |shifted[22:0];
    wire [15:0] q = {1'b0, shifted[38:24]} + {15'd0, guard && (sticky || shifted[24])};

    always_comb begin
        if (is_large || (!is_small && q[15])) begin
            tag = 2'b11;
            vector = word;
        end else if (is_small || q == 16'd0) begin
            tag = 2'b00;
            vector = 32'd0;
        end else if (q > 16'd127) begin
            tag = 2'b10;
            vector = {16'd0, word[31], q[14:0]};
        end else begin
            tag = 2'b01;
            vector = {24'd0, word[31], q[6:0]};
        end
    end
endmodule
