// Decompression Engine: Li et al. (MICRO 2018), Section VI-A and Fig. 10, codec 1 of docs/FORMAT.md.
//
// AXI4-Stream in: an encoded body, 32 bytes a beat. `words` says how many it holds. AXI4-Stream out: eight binary32
// words a beat, lane 0 in the low bits, of which the last beat has 1 to 8 by tkeep. One beat a cycle on the port that
// has more of them. m_axis_tuser beside m_axis_tlast is an error: the body was malformed (the beat's words are then
// zeros or meaningless), or bytes followed the words. At the last beat is_late says that it is bytes behind the words,
// and consumed how many bytes the words took.
module inceptionn_decoder (
    input logic clk,
    input logic rst,  // synchronous; drops what is in the engine
    input logic [31:0] words,  // at least 1; sampled with a packet's first beat
    input logic [255:0] s_axis_tdata,
    input logic [31:0] s_axis_tkeep,
    input logic s_axis_tvalid,
    output logic s_axis_tready,
    input logic s_axis_tlast,
    output logic [255:0] m_axis_tdata,
    output logic [31:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input logic m_axis_tready,
    output logic m_axis_tlast,
    output logic m_axis_tuser,
    output logic is_late,
    output logic [31:0] consumed
);
    wire [15:0] tags;
    wire [255:0] vectors, decoded;
    wire [4:0] unused_k;
    for (genvar i = 0; i < 8; i++) begin : lanes
        inceptionn_decompress_block block (
            .tag(tags[2*i+:2]),
            .vector(vectors[32*i+:32]),
            .word(decoded[32*i+:32])
        );
    end

    burst_decoder #(
        .IS_GROUPED(1'b0)
    ) stages (
        .clk,
        .rst,
        .k(5'd0),
        .words,
        .s_axis_tdata,
        .s_axis_tkeep,
        .s_axis_tvalid,
        .s_axis_tready,
        .s_axis_tlast,
        .lane_k(unused_k),
        .lane_tags(tags),
        .lane_vectors(vectors),
        .lane_words(decoded),
        .m_axis_tdata,
        .m_axis_tkeep,
        .m_axis_tvalid,
        .m_axis_tready,
        .m_axis_tlast,
        .m_axis_tuser,
        .is_late,
        .consumed
    );

    wire _unused = &{1'b0, unused_k};
endmodule
