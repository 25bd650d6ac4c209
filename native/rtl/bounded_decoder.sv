// Decompression Engine of codec 2 (`bounded`, docs/FORMAT.md), after Li et al. (MICRO 2018), Section VI-A and Fig. 10.
//
// AXI4-Stream in: an encoded body, 32 bytes a beat. `words` says how many it holds. AXI4-Stream out: eight binary32
// words a beat, lane 0 in the low bits, of which the last beat has 1 to 8 by tkeep. One beat a cycle on the port that
// has more of them. At the last beat `error` says that the body was malformed (the beat's words are then zeros or
// meaningless), `is_late` that bytes followed the words, and `consumed` how many bytes the words took.
// Stages: 1 burst buffer, 2 split to lanes, 3 decompression blocks.
module bounded_decoder (
    input logic clk,
    input logic rst,  // synchronous; drops what is in the engine
    input logic [4:0] k,  // 1 to 23; sampled as `words`
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
    output logic error,
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
        .IS_GROUPED(1'b1)
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

    // What goes beside the words through all stages: lanes, last, bad, late, consumed; k up to the last.
    logic raw_valid, split_valid;
    logic [38:0] raw_side, split_side, side;
    logic [4:0] raw_k, split_k;
    logic [15:0] raw_tags, split_tags;
    logic [255:0] raw_vectors, split_vectors;
    assign b_ready = !raw_valid || raw_ready;
    assign raw_ready = !split_valid || split_ready;
    assign split_ready = !m_axis_tvalid || m_axis_tready;

    wire [255:0] vectors, decoded;
    vector_splitter splitter (.tags(raw_tags), .joined(raw_vectors), .vectors);
    for (genvar i = 0; i < 8; i++) begin : lanes
        bounded_decompress_block block (
            .exponent_of_step(8'd128 - {3'd0, split_k}),
            .tag(split_tags[2*i+:2]),
            .vector(split_vectors[32*i+:32]),
            .word(decoded[32*i+:32])
        );
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            raw_valid <= 1'b0;
            split_valid <= 1'b0;
            m_axis_tvalid <= 1'b0;
        end else begin
            if (b_ready) begin
                raw_valid <= b_valid;
                raw_side <= {b_lanes, b_last, b_bad, b_late, b_consumed};
                raw_k <= b_k;
                raw_tags <= b_tags;
                raw_vectors <= b_vectors;
            end
            if (raw_ready) begin
                split_valid <= raw_valid;
                split_side <= raw_side;
                split_k <= raw_k;
                split_tags <= raw_tags;
                split_vectors <= vectors;
            end
            if (split_ready) begin
                m_axis_tvalid <= split_valid;
                side <= split_side;
                m_axis_tdata <= decoded;
            end
        end
    end

    wire [3:0] count;
    assign {count, m_axis_tlast, error, is_late, consumed} = side;
    for (genvar i = 0; i < 32; i++) begin : keep
        assign m_axis_tkeep[i] = count > 4'(i / 4);
    end
endmodule
