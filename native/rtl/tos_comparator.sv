// ToS comparator: Li et al. (MICRO 2018), Section VI-B: "a simple comparator checks the ToS field of each incoming
// packet". A frame's first beat has all that it needs: Ethernet's type, IPv4 without options, the ToS without its two
// ECN bits, no fragment, TCP. Combinational.
module tos_comparator (
    input logic [5:0] tag,  // the upper six bits of the ToS that selects the engine: 0x28 >> 2
    input logic [255:0] beat,
    output logic is_tagged
);
    wire is_ipv4 = beat[8*12+:16] == 16'h0008 && beat[8*14+:8] == 8'h45;
    wire is_whole = (beat[8*20+:8] & 8'h3f) == 8'd0 && beat[8*21+:8] == 8'd0;
    assign is_tagged = is_ipv4 && is_whole && beat[8*15+2+:6] == tag && beat[8*23+:8] == 8'd6;

    wire _unused = &{1'b0, beat};
endmodule
