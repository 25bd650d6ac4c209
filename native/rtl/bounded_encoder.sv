// Compression Engine of codec 2 (`bounded`, docs/FORMAT.md), after Li et al. (MICRO 2018), Section VI-A and Fig. 9.
//
// AXI4-Stream in: eight binary32 words a beat, lane 0 in the low bits; a packet's last beat has 1 to 8 words by tkeep.
// AXI4-Stream out: the encoded body, 32 bytes a beat, of which the last one may have fewer. One beat a cycle on the
// port that has more of them: words that compress at the input, words that do not (34 bytes a burst and a byte a group) at the
// output. Stages: 1 compression blocks, 2 shifter tree, 3 group buffer, 4 item, 5 alignment unit. A group's bytes
// follow its last burst by five cycles.
module bounded_encoder (
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
    wire [7:0] top = 8'd142 - {3'd0, k};

    // Lanes that the packet does not have are zeros.
    wire [15:0] block_tags;
    wire [255:0] block_vectors;
    for (genvar i = 0; i < 8; i++) begin : lanes
        bounded_compress_block block (
            .top,
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

    wire g_valid, g_last, g_moves;
    wire [279:0] g_data;
    wire [5:0] g_size;
    group_buffer groups (
        .clk,
        .rst,
        .s_valid(is_burst),
        .s_ready(burst_moves),
        .s_burst(burst),
        .s_size(burst_size),
        .s_last(is_burst_last),
        .m_valid(g_valid),
        .m_ready(g_moves),
        .m_data(g_data),
        .m_size(g_size),
        .m_last(g_last)
    );

    logic [279:0] item;
    logic [5:0] item_size;
    logic is_item, is_item_last;
    wire item_moves;
    assign g_moves = !is_item || item_moves;
    always_ff @(posedge clk) begin
        if (rst) begin
            is_item <= 1'b0;
        end else if (g_moves) begin
            is_item <= g_valid;
            is_item_last <= g_last;
            item <= g_data;
            item_size <= g_size;
        end
    end

    alignment_unit #(
        .BYTES(35)
    ) alignment (
        .clk,
        .rst,
        .s_valid(is_item),
        .s_ready(item_moves),
        .s_data(item),
        .s_size(item_size),
        .s_last(is_item_last),
        .m_axis_tdata,
        .m_axis_tkeep,
        .m_axis_tvalid,
        .m_axis_tready,
        .m_axis_tlast
    );

    wire _unused = &{1'b0, s_axis_tkeep};
endmodule
