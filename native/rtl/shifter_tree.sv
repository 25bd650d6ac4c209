// Shifter tree of the Compression Unit: Li et al. (MICRO 2018), Section VI-A and Fig. 9 (the `<<` and `+` behind the
// CBs). Three levels join the vectors of eight lanes, each in the low bits of its 32, to one of 0 to 256 bits: the upper
// of two neighbours is shifted by the size of the lower one. Combinational.
module shifter_tree (
    input logic [15:0] tags,
    input logic [255:0] vectors,
    output logic [255:0] joined,
    output logic [5:0] size  // bytes
);
    wire [11:0] pairs;
    wire [7:0] quads;
    wire [4:0] half;
    tag_sizes sizes (.tags, .pairs, .quads, .half, .all(size));

    logic [255:0] by_two, by_four;
    always_comb begin
        for (int i = 0; i < 4; i++)
            by_two[64*i+:64] = {32'd0, vectors[64*i+:32]} | {32'd0, vectors[64*i+32+:32]} << {pairs[3*i+:3], 3'd0};
        for (int i = 0; i < 2; i++)
            by_four[128*i+:128] = {64'd0, by_two[128*i+:64]} | {64'd0, by_two[128*i+64+:64]} << {quads[4*i+:4], 3'd0};
    end
    assign joined = {128'd0, by_four[127:0]} | {128'd0, by_four[255:128]} << {half, 3'd0};
endmodule
