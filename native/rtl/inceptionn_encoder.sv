// Compression Engine: Li et al. (MICRO 2018), Section VI-A and Fig. 9, codec 1 of docs/FORMAT.md.
//
// AXI4-Stream in: eight binary32 words a beat, lane 0 in the low bits; a packet's last beat has 1 to 8 words by tkeep.
// AXI4-Stream out: the encoded body, 32 bytes a beat, of which the last one may have fewer. One beat a cycle on the
// port that has more of them: words that compress at the input, words that do not (34 bytes a burst) at the output.
// Stages: 1 compression blocks, 2 shifter tree, 3 alignment unit. Three cycles from the first words to their bytes.
module inceptionn_encoder (
    input logic clk,
    input logic rst,  // synchronous; drops what is in the engine
    input logic [4:0] k,  // 1 to 23, constant from a packet's first beat to the one in which its last beat is taken
    input logic [255:0] s_axis_tdata,
    input logic [31:0] s_axis_tkeep,
    input logic s_axis_tvalid,
    output logic s_axis_tready,
    input logic s_axis_tlast,
    output logic [255:0] m_axis_tdata,
    output logic [31:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input logic m_axis_tready,
    output logic m_axis_tlast
);
    wire [7:0] from_8 = 8'd127 - {3'd0, k};
    wire [7:0] from_16 = from_8 + {4'd0, k[4:1]} + {7'd0, k[0]};

    // Lanes that the packet does not have are zeros.
    wire [15:0] block_tags;
    wire [255:0] block_vectors;
    for (genvar i = 0; i < 8; i++) begin : lanes
        inceptionn_compress_block block (
            .from_8,
            .from_16,
            .word(s_axis_tkeep[4*i] ? s_axis_tdata[32*i+:32] : 32'd0),
            .tag(block_tags[2*i+:2]),
            .vector(block_vectors[32*i+:32])
        );
    end

    wire [271:0] burst;
    wire [5:0] burst_size;
    wire is_burst, is_burst_last, burst_moves;
    burst_joiner joiner (
        .clk,
        .rst,
        .s_valid(s_axis_tvalid),
        .s_ready(s_axis_tready),
        .s_tags(block_tags),
        .s_vectors(block_vectors),
        .s_last(s_axis_tlast),
        .m_valid(is_burst),
        .m_ready(burst_moves),
        .m_burst(burst),
        .m_size(burst_size),
        .m_last(is_burst_last)
    );

    alignment_unit #(
        .BYTES(34)
    ) alignment (
        .clk,
        .rst,
        .s_valid(is_burst),
        .s_ready(burst_moves),
        .s_data(burst),
        .s_size(burst_size),
        .s_last(is_burst_last),
        .m_axis_tdata,
        .m_axis_tkeep,
        .m_axis_tvalid,
        .m_axis_tready,
        .m_axis_tlast
    );

    wire _unused = &{1'b0, s_axis_tkeep};
endmodule
