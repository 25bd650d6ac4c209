// Both decoders but for their decompression blocks: a body becomes bursts, a burst the tags and vectors of eight lanes,
// and what the lanes' blocks make of them leaves as a beat. Li et al. (MICRO 2018), Section VI-A and Fig. 10.
// Stages: 1 burst buffer, 2 split to lanes, 3 decompression blocks. The ports are those of inceptionn_decoder.
module burst_decoder #(
    parameter bit IS_GROUPED = 1'b0  // as of burst_buffer
) (
    input logic clk,
    input logic rst,
    input logic [4:0] k,
    input logic [31:0] words,
    input logic [255:0] s_axis_tdata,
    input logic [31:0] s_axis_tkeep,
    input logic s_axis_tvalid,
    output logic s_axis_tready,
    input logic s_axis_tlast,
    // To the blocks, and from them in the same cycle.
    output logic [4:0] lane_k,
    output logic [15:0] lane_tags,
    output logic [255:0] lane_vectors,
    input logic [255:0] lane_words,
    output logic [255:0] m_axis_tdata,
    output logic [31:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input logic m_axis_tready,
    output logic m_axis_tlast,
    output logic m_axis_tuser,
    output logic is_late,
    output logic [31:0] consumed
);
    wire b_valid, b_last, b_bad, b_late;
    wire [15:0] b_tags;
    wire [255:0] b_vectors;
    wire [3:0] b_lanes;
    wire [31:0] b_consumed;
    wire [4:0] b_k;
    wire b_ready, raw_ready, split_ready;
    burst_buffer #(
        .IS_GROUPED(IS_GROUPED)
    ) buffer (
        .clk,
        .rst,
        .words,
        .k,
        .s_axis_tdata,
        .s_axis_tkeep,
        .s_axis_tvalid,
        .s_axis_tready,
        .s_axis_tlast,
        .m_valid(b_valid),
        .m_ready(b_ready),
        .m_tags(b_tags),
        .m_vectors(b_vectors),
        .m_lanes(b_lanes),
        .m_last(b_last),
        .m_is_bad(b_bad),
        .m_is_late(b_late),
        .m_k(b_k),
        .m_consumed(b_consumed)
    );

    // What goes beside the words through all stages: lanes, last, bad or late, late, consumed; k up to the last.
    logic raw_valid, split_valid;
    logic [38:0] raw_side, split_side, side;
    logic [4:0] raw_k;
    logic [15:0] raw_tags;
    logic [255:0] raw_vectors;
    assign b_ready = !raw_valid || raw_ready;
    assign raw_ready = !split_valid || split_ready;
    assign split_ready = !m_axis_tvalid || m_axis_tready;

    wire [255:0] vectors;
    vector_splitter splitter (.tags(raw_tags), .joined(raw_vectors), .vectors);

    always_ff @(posedge clk) begin
        if (rst) begin
            raw_valid <= 1'b0;
            split_valid <= 1'b0;
            m_axis_tvalid <= 1'b0;
        end else begin
            if (b_ready) begin
                raw_valid <= b_valid;
                raw_side <= {b_lanes, b_last, b_bad || b_late, b_late, b_consumed};
                raw_k <= b_k;
                raw_tags <= b_tags;
                raw_vectors <= b_vectors;
            end
            if (raw_ready) begin
                split_valid <= raw_valid;
                split_side <= raw_side;
                lane_k <= raw_k;
                lane_tags <= raw_tags;
                lane_vectors <= vectors;
            end
            if (split_ready) begin
                m_axis_tvalid <= split_valid;
                side <= split_side;
                m_axis_tdata <= lane_words;
            end
        end
    end

    wire [3:0] count;
    assign {count, m_axis_tlast, m_axis_tuser, is_late, consumed} = side;
    for (genvar i = 0; i < 32; i++) begin : keep
        assign m_axis_tkeep[i] = count > 4'(i / 4);
    end
endmodule
