// Splits the joined vectors of a burst to eight lanes: Li et al. (MICRO 2018), Fig. 10 (between Burst Buffer and
// Decompression Blocks), the inverse of the shifter tree. A lane's vector is in the low bits of its 32; the bits above
// are undefined. Combinational.
module vector_splitter (
    input logic [15:0] tags,
    input logic [255:0] joined,
    output logic [255:0] vectors
);
    wire [11:0] pairs;
    wire [7:0] quads;
    wire [4:0] half;
    wire [5:0] unused_all;
    tag_sizes sizes (.tags, .pairs, .quads, .half, .all(unused_all));

    logic [255:0] by_four, by_two;
    wire [255:0] upper = joined >> {half, 3'd0};
    assign by_four = {upper[127:0], joined[127:0]};
    always_comb begin
        for (int i = 0; i < 2; i++)
            by_two[128*i+:128] = {64'(by_four[128*i+:128] >> {quads[4*i+:4], 3'd0}), by_four[128*i+:64]};
        for (int i = 0; i < 4; i++)
            vectors[64*i+:64] = {32'(by_two[64*i+:64] >> {pairs[3*i+:3], 3'd0}), by_two[64*i+:32]};
    end

    wire _unused = &{1'b0, unused_all, upper[255:128]};
endmodule
