// Decoder of rht:4 (docs/FORMAT.md, codec 5; EDEN, Vargaftik et al., ICML 2022): the bytes of a body in, float32 words
// out, one 512-bit beat of sixteen words a cycle, with the bits of native/codecs/rht.c.
//
// Rules: a packet of one body becomes a packet of `words` words, which is taken with its first beat. The pipeline: read
// blocks, multiply levels by the scale, pick one a word, seven butterfly stages, scale down, flip signs. m_axis_tuser
// beside m_axis_tlast is an error: a body that ends early or late, a malformed scale, or a tkeep that is no packet's. A
// malformed body ends where its error is found, maybe with a null beat (m_axis_tkeep is zero), and what is left of it
// is dropped. At the last beat is_late says that the one error is bytes behind the words, and consumed how many bytes
// the words took.
module rht_decoder (
    input  logic         clk,
    input  logic         rst,
    input  logic [31:0]  words,
    input  logic [511:0] s_axis_tdata,
    input  logic [63:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    output logic [511:0] m_axis_tdata,
    output logic [63:0]  m_axis_tkeep,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic         m_axis_tlast,
    output logic         m_axis_tuser,
    output logic         is_late,
    output logic [31:0]  consumed
);
    // Enabled cycles from the beat that was read to each step's result.
    localparam int MULTIPLIED = 3, PICKED = MULTIPLIED + 1, TRANSFORMED = PICKED + 49, HALVED = TRANSFORMED + 1;
    localparam int DONE = HALVED + 1;
    localparam logic [127:0] SIGNS = 128'h9e3779b97f4a7c15f39cc0605cedc834;
    localparam logic [8*32-1:0] LEVELS = {
        32'h3f800000, 32'h3f41d578, 32'h3f1795c9, 32'h3eeb60aa, 32'h3eb09083, 32'h3e761c82, 32'h3e116a6c, 32'h3d4074ff
    };
    localparam logic [15:0] ZERO = 16'h0000, AS_IT_IS = 16'hffff;

    logic enable;
    assign enable = !m_axis_tvalid || m_axis_tready;

    logic [511:0]         plain;
    logic [15:0]          scale;
    logic [DONE:0]        valid, last, error;
    logic [DONE:0][4:0]   count;
    logic [HALVED:0][2:0] log, index;
    logic [HALVED:0]      is_plain, is_zero;
    logic [MULTIPLIED:0][63:0] codes;
    logic                 late_read, late;
    logic [31:0]          consumed_read;
    rht_blocks blocks (
        .clk, .rst, .words, .s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tready, .s_axis_tlast, .enable,
        .m_valid(valid[0]), .m_words(plain), .m_codes(codes[0]), .m_scale(scale), .m_log(log[0]), .m_index(index[0]),
        .m_count(count[0]), .m_last(last[0]), .m_error(error[0]), .m_is_late(late_read), .m_consumed(consumed_read)
    );
    delay_line #(.WIDTH(33), .DEPTH(DONE)) end_line (
        .clk, .rst, .enable, .d({late_read, consumed_read}), .q({late, consumed})
    );
    assign is_plain[0] = log[0] == 0 || scale == AS_IT_IS;
    assign is_zero[0] = scale == ZERO;
    always_ff @(posedge clk) begin
        if (enable) begin
            {last[DONE:1], error[DONE:1]} <= {last[DONE-1:0], error[DONE-1:0]};
            {is_plain[HALVED:1], is_zero[HALVED:1]} <= {is_plain[HALVED-1:0], is_zero[HALVED-1:0]};
            count[DONE:1] <= count[DONE-1:0];
            log[HALVED:1] <= log[HALVED-1:0];
            index[HALVED:1] <= index[HALVED-1:0];
            codes[MULTIPLIED:1] <= codes[MULTIPLIED-1:0];
        end
        if (rst) valid[DONE:1] <= '0;
        else if (enable) valid[DONE:1] <= valid[DONE-1:0];
    end

    // Levels times the scale, and the one of each word.
    logic [7:0][30:0] values;
    logic [511:0]     picked, transformed, halved;
    for (genvar t = 0; t < 8; t++) begin : level
        rht_product #(.FACTOR(LEVELS[32*t +: 32])) times_scale (
            .clk, .enable, .scale(scale[14:0]), .product(values[t])
        );
    end
    rht_transform #(.LATENCY(TRANSFORMED - PICKED)) transform (
        .clk, .enable, .s_words(picked), .s_index(index[PICKED]), .s_log(log[PICKED]), .m_words(transformed)
    );

    // Signs after the transform. A NaN, which only scales that no encoder writes give, has one form.
    logic [511:0] waiting;
    delay_line #(.DEPTH(HALVED)) plain_line (.clk, .rst, .enable, .d(plain), .q(waiting));
    for (genvar i = 0; i < 16; i++) begin : lane
        logic [31:0] word;
        logic        is_nan;
        float_halve halve (
            .clk, .enable, .a(transformed[32*i +: 32]),
            .halvings({1'b0, log[TRANSFORMED][2:1]} + {2'd0, log[TRANSFORMED][0]}), .q(halved[32*i +: 32])
        );
        assign word = halved[32*i +: 32] ^ {SIGNS[{index[HALVED], 4'(i)}], 31'd0};
        assign is_nan = &word[30:23] && word[22:0] != 0;
        always_ff @(posedge clk) if (enable) begin
            picked[32*i +: 32] <= {codes[MULTIPLIED][4*i + 3], values[codes[MULTIPLIED][4*i +: 3]]};
            if (is_plain[HALVED]) m_axis_tdata[32*i +: 32] <= waiting[32*i +: 32];
            else if (is_zero[HALVED]) m_axis_tdata[32*i +: 32] <= 32'd0;
            else m_axis_tdata[32*i +: 32] <= is_nan ? 32'h7fc00000 : word;
        end
        assign m_axis_tkeep[4*i +: 4] = {4{count[DONE] > 5'(i)}};
    end
    assign m_axis_tvalid = valid[DONE];
    assign m_axis_tlast = last[DONE];
    assign m_axis_tuser = last[DONE] && (error[DONE] || late);
    assign is_late = last[DONE] && late && !error[DONE];
endmodule
