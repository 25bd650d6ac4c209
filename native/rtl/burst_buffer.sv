// Burst Buffer: Li et al. (MICRO 2018), Section VI-A and Fig. 10. Cuts an encoded body into bursts: the buffer begins
// with the next burst, the Tag Decoder gives its size, and as many bytes are shifted away while a beat is appended
// behind the rest. One burst a cycle, as long as the input has its bytes.
//
// The paper's buffer has two beats (512 bits). That is one byte short: with 33 bytes left, of a burst that has 34, it
// can neither decode nor take another beat. This one has 33 bytes and a beat, or 34 where bursts have a flag byte.
//
// IS_GROUPED: codec 2 of docs/FORMAT.md. A byte of flags stands before each eight bursts, and bursts without a flag are
// not there.
//
// What is malformed ends the packet at once, with `m_is_bad` at its last burst: a body that ends early, tags in lanes
// behind `words`, flags behind the last burst, a flagged burst without tags. Bytes behind the last burst are not: there
// `m_is_late` is set (a payload has its tail there). The rest of such a packet is taken and dropped.
module burst_buffer #(
    parameter bit IS_GROUPED = 1'b0
) (
    input logic clk,
    input logic rst,
    input logic [31:0] words,  // that the packet has; sampled with its first beat, as k is
    input logic [4:0] k,
    input logic [255:0] s_axis_tdata,
    input logic [31:0] s_axis_tkeep,
    input logic s_axis_tvalid,
    output logic s_axis_tready,
    input logic s_axis_tlast,
    output logic m_valid,
    input logic m_ready,
    output logic [15:0] m_tags,
    output logic [255:0] m_vectors,  // of 0 to 32 bytes; other bytes follow them
    output logic [3:0] m_lanes,      // words of the burst, 1 to 8
    output logic m_last,
    output logic m_is_bad,
    output logic m_is_late,
    output logic [4:0] m_k,
    output logic [31:0] m_consumed  // bytes of the body up to the end of this burst
);
    localparam int LEFT = IS_GROUPED ? 34 : 33;  // bytes of the longest burst, less one
    localparam int HELD = LEFT + 32;

    logic [8*HELD-1:0] held;
    logic [6:0] count;  // bytes held; what is behind them is zero
    logic [31:0] remaining;  // words
    logic [31:0] consumed;
    logic is_busy;      // amid a packet
    logic is_ended;     // its last beat is in the buffer
    logic is_draining;  // its rest is dropped

    // The next burst.
    wire [8*HELD-1:0] burst;  // behind the flags
    wire is_there, has_flags, is_flags_bad;
    wire [5:0] vectors_size;
    wire is_final = remaining <= 32'd8;
    assign m_lanes = is_final ? remaining[3:0] : 4'd8;
    assign m_tags = is_there ? burst[15:0] : 16'd0;
    assign m_vectors = burst[271:16];
    wire [11:0] unused_pairs;
    wire [7:0] unused_quads;
    wire [4:0] unused_half;
    tag_sizes sizes (
        .tags(m_tags),
        .pairs(unused_pairs),
        .quads(unused_quads),
        .half(unused_half),
        .all(vectors_size)
    );
    wire [5:0] size = vectors_size + {4'd0, is_there, 1'b0} + {5'd0, has_flags};

    wire is_short = {1'b0, size} > count;  // also where tags are missing: zeros stand for them, but not for their bytes
    wire is_over = |(m_tags >> {m_lanes, 1'b0});
    assign m_valid = is_busy && (!is_short || is_ended);
    assign m_is_bad = is_short || is_over || is_flags_bad;
    assign m_last = is_final || m_is_bad;
    assign m_is_late = m_last && !m_is_bad && (!is_ended || count != {1'b0, size});
    assign m_consumed = consumed + {26'd0, size};

    // The next beat.
    wire fires = m_valid && m_ready;
    wire ends = fires && m_last;
    wire [6:0] left = fires ? count - {1'b0, size} : count;
    wire [5:0] place = is_busy ? left[5:0] : 6'd0;
    assign s_axis_tready = is_draining || !is_busy || (ends ? is_ended : !is_ended && left <= 7'(LEFT));
    wire takes = s_axis_tvalid && s_axis_tready && !is_draining;
    wire is_first = !is_busy || ends;

    logic [255:0] beat;
    logic [5:0] beat_size;
    always_comb begin
        beat_size = 6'd0;
        for (int i = 0; i < 32; i++) begin
            beat[8*i+:8] = s_axis_tkeep[i] ? s_axis_tdata[8*i+:8] : 8'd0;
            beat_size = beat_size + {5'd0, s_axis_tkeep[i]};
        end
    end

    wire [8*HELD-1:0] shifted = fires ? held >> {size, 3'd0} : held;
    wire [8*HELD-1:0] appended = {{8 * LEFT{1'b0}}, beat} << {place, 3'd0};

    always_ff @(posedge clk) begin
        if (rst) begin
            held <= '0;
            count <= 7'd0;
            remaining <= 32'd0;
            consumed <= 32'd0;
            is_busy <= 1'b0;
            is_ended <= 1'b0;
            is_draining <= 1'b0;
        end else begin
            if (is_first) begin
                held <= takes ? {{8 * LEFT{1'b0}}, beat} : '0;
                count <= takes ? {1'b0, beat_size} : 7'd0;
                remaining <= words;
                m_k <= k;
                consumed <= 32'd0;
                is_busy <= takes;
                is_ended <= takes && s_axis_tlast;
            end else begin
                held <= takes ? shifted | appended : shifted;
                count <= takes ? left + {1'b0, beat_size} : left;
                if (fires) begin
                    remaining <= remaining - 32'd8;
                    consumed <= m_consumed;
                end
                is_ended <= is_ended || (takes && s_axis_tlast);
            end
            is_draining <= is_draining ? !(s_axis_tvalid && s_axis_tlast) : ends && !is_ended;
        end
    end

    if (IS_GROUPED) begin : grouped
        logic [7:0] flags;  // of this burst and those behind it
        logic [2:0] place_in_group;
        wire [7:0] current = has_flags ? held[7:0] : flags;
        assign has_flags = place_in_group == 3'd0;
        assign burst = has_flags ? {8'd0, held[8*HELD-1:8]} : held;
        assign is_there = current[0];
        assign is_flags_bad = (is_there && burst[15:0] == 16'd0) || (is_final && current[7:1] != 7'd0);
        always_ff @(posedge clk) begin
            if (rst || is_first) begin
                place_in_group <= 3'd0;
            end else if (fires) begin
                place_in_group <= place_in_group + 3'd1;
                flags <= {1'b0, current[7:1]};
            end
        end
    end else begin : plain
        assign has_flags = 1'b0;
        assign burst = held;
        assign is_there = 1'b1;
        assign is_flags_bad = 1'b0;
    end

    wire _unused = &{1'b0, unused_pairs, unused_quads, unused_half, burst[8*HELD-1:272]};
endmodule
