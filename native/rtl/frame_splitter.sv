// Splits frames to header and payload, for the packet path of Li et al. (MICRO 2018), Section VI-A: "the Compression
// Engine also does not compress the header and the compression starts as soon as the first burst of the payload
// arrives". The header, whose length is known with the second beat (TCP has options), stays in `header`; the payload,
// which may begin anywhere in a beat, leaves in whole beats. Bytes behind IPv4's length are dropped.
//
// A frame that is not tagged, or has no payload, is payload throughout (`header_size` is 0).
module frame_splitter #(
    parameter int MORE = 0  // bytes of the payload that count as header
) (
    input logic clk,
    input logic rst,
    input logic drop,  // what is left of the payload of this frame
    input logic [5:0] tag,
    input logic may_begin,  // the next frame
    output logic begins,
    input logic [255:0] s_axis_tdata,
    input logic [31:0] s_axis_tkeep,
    input logic s_axis_tvalid,
    output logic s_axis_tready,
    input logic s_axis_tlast,
    output logic [1023:0] header,
    output logic [6:0] header_size,
    output logic [15:0] payload_size,
    output logic is_done,   // all beats of the frame have been taken
    output logic is_short,  // then: the frame was shorter than it says
    output logic [255:0] m_axis_tdata,
    output logic [31:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input logic m_axis_tready,
    output logic m_axis_tlast
);
    // The beat at hand; behind it, at the input, the next one.
    logic [255:0] beat;
    logic [5:0] beat_size;
    logic is_beat, is_last;
    logic [2:0] index;  // of the beat in its frame, up to 4
    wire is_first = index == 3'd0;

    logic [5:0] next_size;
    always_comb begin
        next_size = 6'd0;
        for (int i = 0; i < 32; i++) next_size = next_size + {5'd0, s_axis_tkeep[i]};
    end

    // What the first two beats say.
    wire is_tagged;
    tos_comparator comparator (.tag, .beat, .is_tagged);
    wire [5:0] tcp_size = {s_axis_tdata[8*14+4+:4], 2'd0};
    wire [15:0] total = {beat[8*16+:8], beat[8*17+:8]};
    wire [15:0] headers = 16'd20 + {10'd0, tcp_size};
    wire has_payload = is_tagged && beat_size == 6'd32 && !is_last && next_size > 6'd14 && tcp_size >= 6'd20 &&
        total > headers;
    wire [6:0] new_header_size = has_payload ? 7'd34 + {1'b0, tcp_size} + 7'(MORE) : 7'd0;
    wire [15:0] new_payload_size = total - headers > 16'(MORE) ? total - headers - 16'(MORE) : 16'd0;

    // Which bytes of the beat are payload.
    logic [15:0] left_before;
    wire [6:0] size_of_header = is_first ? new_header_size : header_size;
    wire [15:0] left = is_first ? new_payload_size : left_before;
    wire is_whole = size_of_header == 7'd0;
    wire [7:0] beat_begin = {index, 5'd0};
    wire [7:0] header_left = {1'b0, size_of_header} > beat_begin ? {1'b0, size_of_header} - beat_begin : 8'd0;
    wire [5:0] skip = header_left > 8'd32 ? 6'd32 : header_left[5:0];
    wire [5:0] behind = beat_size > skip ? beat_size - skip : 6'd0;
    wire [5:0] size = !is_whole && left < {10'd0, behind} ? left[5:0] : behind;
    wire [15:0] left_after = left - {10'd0, size};

    logic [255:0] item, masked;
    logic [5:0] item_size;
    logic is_item, is_item_last;
    wire item_moves;
    wire steps = is_beat && (!is_first || (may_begin && (is_last || s_axis_tvalid))) && (!is_item || item_moves);
    assign begins = steps && is_first;
    assign s_axis_tready = !is_beat || steps;
    wire [255:0] skipped = beat >> {skip, 3'd0};
    always_comb begin
        for (int i = 0; i < 32; i++) masked[8*i+:8] = 6'(i) < size ? skipped[8*i+:8] : 8'd0;
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            is_beat <= 1'b0;
            index <= 3'd0;
            is_done <= 1'b0;
            is_short <= 1'b0;
            header_size <= 7'd0;
            payload_size <= 16'd0;
        end else begin
            if (s_axis_tready) begin
                is_beat <= s_axis_tvalid;
                beat <= s_axis_tdata;
                beat_size <= next_size;
                is_last <= s_axis_tlast;
            end
            if (steps) begin
                index <= is_last ? 3'd0 : index == 3'd4 ? 3'd4 : index + 3'd1;
                is_done <= is_last;
                is_short <= is_last && !is_whole && left_after != 16'd0;
                left_before <= left_after;
                if (is_first) begin
                    header_size <= new_header_size;
                    payload_size <= new_payload_size;
                end
                if (index < 3'd4) header[{index[1:0], 8'd0}+:256] <= beat;
            end
        end
        if (rst || drop) begin
            is_item <= 1'b0;
        end else if (steps || item_moves) begin
            is_item <= steps && size != 6'd0;
            item <= masked;
            item_size <= size;
            is_item_last <= is_whole ? is_last : left_after == 16'd0;
        end
    end

    alignment_unit #(
        .BYTES(32)
    ) alignment (
        .clk,
        .rst(rst || drop),
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
endmodule
