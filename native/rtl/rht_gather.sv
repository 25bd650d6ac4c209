// Blocks of rht's encoder (docs/FORMAT.md, codec 5): gathers up to 128 words, since the end of a packet decides into
// which blocks they are split and a single word whether a block is transformed, and passes on beats of blocks.
//
// Rules: whole groups of eight beats are a block. What is left at a packet's end leaves as blocks of 4, 2 and 1 beats,
// of eight words, and as up to seven words without a block (m_log = 0, m_count words; null where a packet is empty or
// ends with a null beat). The beats of a block leave without a pause. Two banks take turns, so that a beat enters and
// leaves in each cycle; a packet's end may cost two more. m_is_huge: the block has a word with an exponent of F0 or
// more, and is not transformed. s_kept are the first words of a beat, all but at a packet's end; the others must be
// zero.
module rht_gather (
    input  logic         clk,
    input  logic         rst,
    input  logic [511:0] s_words,
    input  logic [15:0]  s_kept,
    input  logic         s_last,
    input  logic         s_error,
    input  logic         s_valid,
    output logic         s_ready,
    input  logic         enable,
    output logic         m_valid,
    output logic [511:0] m_words,
    output logic [2:0]   m_log,
    output logic [2:0]   m_index,
    output logic [2:0]   m_count,
    output logic         m_is_huge,
    output logic         m_is_end,
    output logic         m_last,
    output logic         m_error
);
    // What a beat has: how many words, and huge ones in its lower half and in both.
    logic [15:0] huge;
    logic [4:0]  kept;
    for (genvar i = 0; i < 16; i++) begin : word
        assign huge[i] = s_kept[i] && &s_words[32*i + 27 +: 4];
    end
    logic [6:0] of_8;
    logic [2:0] of_4;
    assign of_8 = s_kept[7] ? s_kept[14:8] : s_kept[6:0];
    assign of_4 = of_8[3] ? of_8[6:4] : of_8[2:0];
    assign kept = s_kept[15] ? 5'd16 : {1'b0, s_kept[7], of_8[3], of_4[1], of_4[1] ? of_4[2] : of_4[0]};

    // The banks: beats, and what is known of a whole group.
    logic [511:0]    memory[16];
    logic [1:0]      full, last, error;
    logic [1:0][7:0] huge_beats;
    logic [1:0]      huge_half;
    logic [1:0][3:0] beats, rest;
    logic            into, from;
    logic [2:0]      place;
    logic            enters, closes;
    assign s_ready = !full[into];
    assign enters = s_ready && s_valid;
    assign closes = s_last || place == 3'd7;
    always_ff @(posedge clk) begin
        if (enters) begin
            memory[{into, place}] <= s_words;
            huge_beats[into][place] <= |huge;
            huge_half[into] <= |huge[7:0];
            beats[into] <= {1'b0, place} + {3'd0, kept[4]};
            rest[into] <= kept[3:0];
            last[into] <= s_last;
            error[into] <= s_error || (place != 0 && error[into]);
        end
        if (rst) begin
            into <= 1'b0;
            place <= 3'd0;
        end else if (enters) begin
            into <= into ^ closes;
            place <= closes ? 3'd0 : place + 3'd1;
        end
    end

    // The block at the beat that leaves next. Words without a block follow the last one.
    logic [2:0]   at, index, log, log_left, block_log;
    logic [3:0]   left;
    logic         half_left, half_is_done, is_half, is_upper, is_end, is_done, huge_now, huge_block, block_huge;
    logic [511:0] beat;
    assign left = beats[from] - {1'b0, at};
    assign half_left = rest[from][3] && !half_is_done;
    always_comb begin
        if (left[3]) log_left = 3'd7;
        else if (left[2]) log_left = 3'd6;
        else if (left[1]) log_left = 3'd5;
        else if (left[0]) log_left = 3'd4;
        else if (half_left) log_left = 3'd3;
        else log_left = 3'd0;
    end
    always_comb begin
        case (log_left)
            3'd7: huge_now = |huge_beats[from];
            3'd6: huge_now = |huge_beats[from][3:0];
            3'd5: huge_now = |(huge_beats[from][7:0] >> at & 8'h03);
            3'd4: huge_now = huge_beats[from][at];
            3'd3: huge_now = huge_half[from];
            default: huge_now = 1'b0;
        endcase
    end
    assign log = index == 0 ? log_left : block_log;
    assign block_huge = index == 0 ? huge_now : huge_block;
    assign is_half = log == 3'd3;
    assign is_upper = log == 3'd0 && rest[from][3];
    assign is_end = log <= 3'd4 || &(index | ~(3'd7 >> (3'd7 - log)));
    // A group is done after its last block, unless words without one follow, or nothing else can carry the packet's
    // end.
    always_comb begin
        if (log == 3'd0) is_done = 1'b1;
        else if (is_half) is_done = rest[from][2:0] == 0;
        else is_done = is_end && {1'b0, at} + 4'd1 == beats[from] && rest[from] == 0;
    end
    assign beat = memory[{from, at}];

    logic leaves;
    assign leaves = enable && full[from];
    always_ff @(posedge clk) begin
        if (enable) begin
            for (int i = 0; i < 8; i++) begin
                m_words[32*i +: 32] <= is_upper ? beat[32*i + 256 +: 32] : beat[32*i +: 32];
                m_words[32*i + 256 +: 32] <= is_half || is_upper ? 32'd0 : beat[32*i + 256 +: 32];
            end
            m_log <= log;
            m_index <= index;
            m_count <= rest[from][2:0];
            m_is_huge <= block_huge;
            m_is_end <= is_end;
            m_last <= is_done && last[from];
            m_error <= error[from];
        end
        if (leaves && index == 0) {block_log, huge_block} <= {log_left, huge_now};
        if (rst) begin
            m_valid <= 1'b0;
            full <= 2'b00;
            from <= 1'b0;
            at <= 3'd0;
            index <= 3'd0;
            half_is_done <= 1'b0;
        end else begin
            if (enable) m_valid <= full[from];
            if (enters && closes) full[into] <= 1'b1;
            if (leaves) begin
                index <= is_end ? 3'd0 : index + 3'd1;
                half_is_done <= is_half && !is_done;
                if (!is_half && log != 0) at <= at + 3'd1;
                if (is_done) begin
                    full[from] <= 1'b0;
                    from <= !from;
                    at <= 3'd0;
                end
            end
        end
    end
endmodule
