// Which of a beat's sixteen words are kept, and whether its tkeep is one that a stream of words has: whole words, the
// first ones, and all of them in every beat but a packet's last.
module words_kept (
    input  logic [63:0] keep,
    input  logic        last,
    output logic [15:0] kept,
    output logic        is_bad
);
    logic [15:0] broken;
    for (genvar i = 0; i < 16; i++) begin : word
        assign kept[i] = keep[4*i];
        assign broken[i] = keep[4*i +: 4] != {4{keep[4*i]}};
    end
    assign is_bad = |broken || |(kept[15:1] & ~kept[14:0]) || (!last && !kept[15]);
endmodule
