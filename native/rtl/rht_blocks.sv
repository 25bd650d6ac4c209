// Blocks of rht's decoder (docs/FORMAT.md, codec 5): reads a body and passes on, beat by beat, the scale and the codes
// of its blocks, or their words.
//
// Rules: `words` of a packet's words are split into blocks as the encoder splits them: 128 words each, then 64, 32, 16
// and 8, then up to seven words without a block (m_log = 0). A block with codes starts when all of them are here, so
// that its beats follow each other without a pause. Its scale is read with the codes of the beat before it, where it is
// here. A body that ends early, a scale that is malformed and a tkeep that is no packet's end the packet with m_error,
// maybe with a null beat (m_count is 0). At a packet's last beat m_is_late says that bytes follow the words, and
// m_consumed how many bytes the words took.
module rht_blocks (
    input  logic         clk,
    input  logic         rst,
    input  logic [31:0]  words,
    input  logic [511:0] s_axis_tdata,
    input  logic [63:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    input  logic         enable,
    output logic         m_valid,
    output logic [511:0] m_words,
    output logic [63:0]  m_codes,
    output logic [15:0]  m_scale,
    output logic [2:0]   m_log,
    output logic [2:0]   m_index,
    output logic [4:0]   m_count,
    output logic         m_last,
    output logic         m_error,
    output logic         m_is_late,
    output logic [31:0]  m_consumed
);
    localparam logic [15:0] ZERO = 16'h0000, MALFORMED = 16'h7f80, AS_IT_IS = 16'hffff;

    logic         starts, ended, is_bad, take, drop;
    logic [511:0] window;
    logic [7:0]   count;
    logic [6:0]   take_bytes;
    body_window #(.TAKE(64)) body (
        .clk, .rst, .s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tready, .s_axis_tlast, .starts, .window,
        .count, .ended, .is_bad, .take, .take_bytes, .drop
    );

    // The packet, and the block at the window: its size follows from the words that are left.
    logic        reads, drains, has_scale;
    logic [31:0] left;
    logic [6:0]  rest_after; // words behind the block, less those of whole blocks
    logic        is_last_whole;
    logic [15:0] scale;
    logic [2:0]  log, index;
    logic        is_zero, is_plain, is_coded, is_malformed, is_end, is_final;
    always_comb begin
        if (|left[31:7]) log = 3'd7;
        else if (left[6]) log = 3'd6;
        else if (left[5]) log = 3'd5;
        else if (left[4]) log = 3'd4;
        else if (left[3]) log = 3'd3;
        else log = 3'd0;
    end
    assign is_plain = log == 0 || scale == AS_IT_IS;
    assign is_zero = log != 0 && scale == ZERO;
    assign is_coded = !is_plain && !is_zero;
    assign is_malformed = log != 0 && has_scale && scale >= MALFORMED && scale != AS_IT_IS;
    assign is_end = log <= 3'd4 || &(index | ~(3'd7 >> (3'd7 - log)));
    assign rest_after = left[6:0] & ~(log == 3'd7 ? 7'd0 : 7'd1 << log);
    assign is_last_whole = left[31:8] == 0; // or there is none
    assign is_final = log == 0 || (is_last_whole && rest_after == 0);

    // Bytes of the beat, and of what must be here before it leaves: all codes of a block, before the first.
    logic [6:0] beat_bytes, needed;
    always_comb begin
        if (log == 0) beat_bytes = {2'd0, left[2:0], 2'd0};
        else if (is_plain) beat_bytes = log == 3'd3 ? 7'd32 : 7'd64;
        else if (is_zero) beat_bytes = 7'd0;
        else beat_bytes = log == 3'd3 ? 7'd4 : 7'd8;
        needed = is_coded && index == 0 ? 7'd1 << (log - 3'd1) : beat_bytes;
    end

    // A packet's last beat shows whether its body ended where it should. Codes wait for that before the first beat.
    logic is_here, shows_end, is_known, is_cut, is_long, reads_scale, reads_next, puts, ends;
    assign reads_scale = log != 0 && !has_scale;
    assign is_here = !reads_scale && !is_malformed && count >= {1'b0, needed};
    assign shows_end = is_final && (is_plain ? is_end : index == 0);
    assign is_known = !shows_end || ended || count > {1'b0, needed};
    assign is_cut = is_malformed || (ended && (reads_scale ? count < 8'd2 : !is_here));
    assign is_long = is_final && is_end && count != {1'b0, beat_bytes};
    assign puts = reads && (is_cut || (is_here && is_known));
    assign ends = is_cut || (is_final && is_end);
    assign reads_next = is_end && !is_plain && (!is_last_whole || rest_after[6:3] != 0)
        && count >= {1'b0, beat_bytes} + 8'd2;

    logic reads_now;
    assign reads_now = reads && reads_scale && count >= 8'd2;
    assign take = enable && ((puts && !ends) || reads_now);
    assign take_bytes = reads_scale ? 7'd2 : beat_bytes + (reads_next ? 7'd2 : 7'd0);
    assign drop = drains || (enable && puts && ends);

    // Bytes before the beat, a cycle later, so that they do not lengthen the path of sizes.
    logic [6:0]  step;
    logic [31:0] passed;
    always_ff @(posedge clk) begin
        step <= take ? take_bytes : 7'd0;
        passed <= starts ? 32'd0 : passed + {25'd0, step};
    end

    always_ff @(posedge clk) begin
        if (enable) begin
            m_words <= window;
            m_codes <= window[63:0];
            m_scale <= scale;
            m_log <= log;
            m_index <= index;
            m_count <= is_cut ? 5'd0 : log == 0 ? left[4:0] : log == 3'd3 ? 5'd8 : 5'd16;
            m_last <= ends;
            m_error <= is_cut || is_bad;
            m_is_late <= is_long;
            m_consumed <= passed + {25'd0, step} + {25'd0, beat_bytes};
        end
        if (starts) left <= words;
        else if (enable && puts && is_end) left <= {left[31:7] - {24'd0, log == 3'd7}, rest_after};
        if (enable && reads_now) scale <= window[15:0];
        else if (enable && puts && reads_next) scale <= is_zero ? window[15:0] : window[79:64];
        if (rst) begin
            {m_valid, reads, drains, has_scale} <= '0;
            index <= 3'd0;
        end else begin
            if (enable) m_valid <= puts;
            if (starts) reads <= 1'b1;
            else if (enable && puts && ends) reads <= 1'b0;
            if (enable && puts && ends && !ended) drains <= 1'b1;
            else if (ended) drains <= 1'b0;
            if (enable && puts) begin
                index <= is_end || ends ? 3'd0 : index + 3'd1;
                if (is_end || ends) has_scale <= !ends && reads_next;
            end else if (enable && reads_now) has_scale <= 1'b1;
        end
    end
endmodule
