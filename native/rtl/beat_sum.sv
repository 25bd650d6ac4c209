// Sum of the 16-bit big-endian words of a beat, for the internet checksum (RFC 1071). Combinational.
module beat_sum (
    input logic [255:0] beat,  // zero behind its bytes
    output logic [31:0] sum
);
    always_comb begin
        sum = 32'd0;
        for (int i = 0; i < 16; i++) sum = sum + {16'd0, beat[16*i+:8], beat[16*i+8+:8]};
    end
endmodule
