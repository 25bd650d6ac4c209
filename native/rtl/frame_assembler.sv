// Puts frames together again, for the packet path of Li et al. (MICRO 2018), Section VI-A: "reattach it to the packet".
// Header and body are written to a memory of two frames or more, the "virtual FIFO" of the paper's Fig. 8; when a body
// is complete, IPv4's length and both checksums are mended, and header and body leave as one frame.
//
// Checksums are updated by what has changed (RFC 1624), so that a wrong one stays wrong: damage that a frame has
// suffered before is still found by the receiver.
module frame_assembler #(
    parameter int BEATS = 1024  // of the memory; at most half of them for one frame
) (
    input logic clk,
    input logic rst,
    input logic drop,  // the body written so far
    output logic is_overrun,  // the body is too long
    input logic [255:0] s_axis_tdata,  // the body
    input logic [31:0] s_axis_tkeep,
    input logic s_axis_tvalid,
    output logic s_axis_tready,
    input logic s_axis_tlast,
    // With the body's last beat:
    input logic may_end,
    input logic [1023:0] header,     // up to TCP's options
    input logic [6:0] header_size,   // 0: the body is the frame
    input logic [95:0] more,         // the payload's first bytes, before the body
    input logic [3:0] more_size,     // 0 or 12
    input logic [31:0] removed,      // sum of the payload that the frame has come with
    output logic [255:0] m_axis_tdata,
    output logic [31:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input logic m_axis_tready,
    output logic m_axis_tlast
);
    localparam int BITS = $clog2(BEATS);

    function automatic logic [15:0] fold(input logic [31:0] sum);
        logic [16:0] once;
        once = {1'b0, sum[31:16]} + {1'b0, sum[15:0]};
        fold = once[15:0] + {15'd0, once[16]};
    endfunction

    // Writing. `begun` is where the frame in work begins.
    logic [255:0] memory[BEATS];
    logic [BITS:0] written, begun, read;
    logic [15:0] size;
    logic [31:0] sum;
    logic is_waiting;  // a complete frame, whose header is in the registers below
    wire [31:0] sum_of_beat;
    beat_sum sums (.beat(s_axis_tdata), .sum(sum_of_beat));
    wire is_full = written - read == (BITS + 1)'(BEATS);
    assign is_overrun = written - begun >= (BITS + 1)'(BEATS / 2);
    assign s_axis_tready = !is_full && !is_overrun && (!s_axis_tlast || (may_end && !is_waiting));
    wire takes = s_axis_tvalid && s_axis_tready;
    wire ends = takes && s_axis_tlast;

    logic [5:0] beat_size;
    always_comb begin
        beat_size = 6'd0;
        for (int i = 0; i < 32; i++) beat_size = beat_size + {5'd0, s_axis_tkeep[i]};
    end
    wire [15:0] whole_size = size + {10'd0, beat_size};
    wire [31:0] whole_sum = sum + sum_of_beat;

    always_ff @(posedge clk) begin
        if (rst) begin
            written <= '0;
            begun <= '0;
            size <= 16'd0;
            sum <= 32'd0;
        end else if (drop) begin
            written <= begun;
            size <= 16'd0;
            sum <= 32'd0;
        end else if (takes) begin
            written <= written + 1'b1;
            size <= s_axis_tlast ? 16'd0 : whole_size;
            sum <= s_axis_tlast ? 32'd0 : whole_sum;
            if (s_axis_tlast) begun <= written + 1'b1;
        end
    end
    always_ff @(posedge clk) begin
        if (takes) memory[written[BITS-1:0]] <= s_axis_tdata;
    end

    // The header of the complete frame, mended in the cycle after its end.
    logic [1023:0] head;
    logic [6:0] head_size;
    logic [15:0] body_size;
    logic [15:0] added, taken_away;
    logic is_mended;
    wire [31:0] sum_of_more;
    beat_sum sum_more (.beat({160'd0, more}), .sum(sum_of_more));
    wire [7:0] head_and_more = {1'b0, header_size} + {4'd0, more_size};
    wire [15:0] old_length = {head[8*16+:8], head[8*17+:8]};
    wire [15:0] new_length = {9'd0, head_size} - 16'd14 + body_size;
    wire [15:0] old_ip = {head[8*24+:8], head[8*25+:8]};
    wire [15:0] old_tcp = {head[8*50+:8], head[8*51+:8]};
    wire [31:0] by_length = {16'd0, ~old_length} + {16'd0, new_length};
    wire [15:0] new_ip = ~fold({16'd0, ~old_ip} + by_length);
    wire [15:0] new_tcp = ~fold({16'd0, ~old_tcp} + by_length + {16'd0, ~taken_away} + {16'd0, added});

    // Reading: the header's beats, then the body's.
    logic [2:0] head_index;
    logic [15:0] body_left;
    logic [255:0] body_beat;
    wire out_ready;
    wire [6:0] head_begin = {head_index[1:0], 5'd0};
    wire is_head = head_begin < head_size && head_index != 3'd4;
    wire [6:0] head_left = head_size - head_begin;
    wire [5:0] out_size = is_head ? (head_left > 7'd32 ? 6'd32 : head_left[5:0])
                                  : (body_left > 16'd32 ? 6'd32 : body_left[5:0]);
    logic [255:0] out_data;
    always_comb begin
        for (int i = 0; i < 32; i++)
            out_data[8*i+:8] = 6'(i) >= out_size ? 8'd0 :
                is_head ? head[{head_index[1:0], 8'd0} + 10'(8 * i)+:8] : body_beat[8*i+:8];
    end
    wire out_valid = is_waiting && is_mended;
    wire out_last = !is_head && body_left <= 16'd32;
    wire out_fires = out_valid && out_ready;
    wire [BITS:0] next_read = out_fires && !is_head ? read + 1'b1 : read;

    always_ff @(posedge clk) begin
        body_beat <= memory[next_read[BITS-1:0]];
        if (rst) begin
            read <= '0;
            is_waiting <= 1'b0;
            is_mended <= 1'b0;
        end else begin
            read <= next_read;
            if (ends && !drop) begin
                is_waiting <= 1'b1;
                is_mended <= 1'b0;
                head <= header_size == 7'd0 ? header : (header & ~({1024{1'b1}} << {header_size, 3'd0}))
                    | (more_size == 4'd0 ? 1024'd0 : {928'd0, more} << {header_size, 3'd0});
                head_size <= head_and_more[6:0];
                body_size <= whole_size;
                body_left <= whole_size;
                added <= fold(whole_sum + (more_size == 4'd0 ? 32'd0 : sum_of_more));
                taken_away <= fold(removed);
                head_index <= 3'd0;
            end else if (is_waiting && !is_mended) begin
                is_mended <= 1'b1;
                if (head_size != 7'd0) begin
                    head[8*16+:16] <= {new_length[7:0], new_length[15:8]};
                    head[8*24+:16] <= {new_ip[7:0], new_ip[15:8]};
                    head[8*50+:16] <= {new_tcp[7:0], new_tcp[15:8]};
                end
            end else if (out_fires) begin
                if (is_head) head_index <= head_index + 3'd1;
                else body_left <= body_left - 16'd32;
                if (out_last) is_waiting <= 1'b0;
            end
        end
    end

    alignment_unit #(
        .BYTES(32)
    ) alignment (
        .clk,
        .rst,
        .s_valid(out_valid),
        .s_ready(out_ready),
        .s_data(out_data),
        .s_size(out_size),
        .s_last(out_last),
        .m_axis_tdata,
        .m_axis_tkeep,
        .m_axis_tvalid,
        .m_axis_tready,
        .m_axis_tlast
    );

    wire _unused = &{1'b0, head_and_more[7]};
endmodule
