// Tag Decoder: Li et al. (MICRO 2018), Fig. 10. The bytes of a burst's vectors by its tag word, for all eight lanes,
// for four and for two neighbours: the shifts of the shifter tree and of its inverse. Combinational.
module tag_sizes (
    input logic [15:0] tags,
    output logic [11:0] pairs,  // 3 bits each: of lanes 0, 2, 4, 6 alone, by which their neighbours are shifted
    output logic [7:0] quads,   // 4 bits each: of lanes 0 and 1, and of lanes 4 and 5
    output logic [4:0] half,    // of lanes 0 to 3
    output logic [5:0] all
);
    function automatic logic [2:0] size_of(input logic [1:0] one);
        size_of = {one == 2'b11, one == 2'b10, one == 2'b01};
    endfunction

    wire [3:0] sum_01 = {1'b0, size_of(tags[1:0])} + {1'b0, size_of(tags[3:2])};
    wire [3:0] sum_23 = {1'b0, size_of(tags[5:4])} + {1'b0, size_of(tags[7:6])};
    wire [3:0] sum_45 = {1'b0, size_of(tags[9:8])} + {1'b0, size_of(tags[11:10])};
    wire [3:0] sum_67 = {1'b0, size_of(tags[13:12])} + {1'b0, size_of(tags[15:14])};
    wire [4:0] sum_47 = {1'b0, sum_45} + {1'b0, sum_67};

    assign pairs = {size_of(tags[13:12]), size_of(tags[9:8]), size_of(tags[5:4]), size_of(tags[1:0])};
    assign quads = {sum_45, sum_01};
    assign half = {1'b0, sum_01} + {1'b0, sum_23};
    assign all = {1'b0, half} + {1'b0, sum_47};
endmodule
