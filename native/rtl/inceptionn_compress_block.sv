// Compression Block (CB) of one lane: Li et al. (MICRO 2018), Algorithm 2 and Fig. 9, codec 1 of docs/FORMAT.md.
// One binary32 word becomes a tag of two bits and a vector of 0, 8, 16 or 32 bits. The paper shifts the mantissa, with
// its leading one, right by 127 - e; of the result, bits 22 to 8 or 22 to 16 are sent. Bits of `vector` above the
// tag's size are zero, as the shifter tree requires. Combinational.
module inceptionn_compress_block (
    input logic [7:0] from_8,   // exponent fields from which a word has 8 bits,
    input logic [7:0] from_16,  // and 16
    input logic [31:0] word,
    output logic [1:0] tag,
    output logic [31:0] vector
);
    wire [7:0] exponent = word[30:23];
    wire [7:0] shift = 8'd126 - exponent;  // the paper's shift less one: the leading one is at the top already
    wire [14:0] leading = {1'b1, word[22:9]};
    wire [14:0] shifted = shift[3:0] == 4'd15 || shift[4] ? 15'd0 : leading >> shift[3:0];

    always_comb begin
        if (exponent >= 8'd127) begin
            tag = 2'b11;
            vector = word;
        end else if (exponent < from_8) begin
            tag = 2'b00;
            vector = 32'd0;
        end else if (exponent >= from_16) begin
            tag = 2'b10;
            vector = {16'd0, word[31], shifted};
        end else begin
            tag = 2'b01;
            vector = {24'd0, word[31], shifted[14:8]};
        end
    end

    wire _unused = &{1'b0, word[8:0], shift[7:5]};
endmodule
