// Encoder of rht:4 (docs/FORMAT.md, codec 5; EDEN, Vargaftik et al., ICML 2022): float32 words in, the bytes of a body
// out, one 512-bit beat of sixteen words a cycle, with the bits of native/codecs/rht.c.
//
// Rules: a packet of words becomes a packet of one body. The pipeline: gather blocks, flip signs, seven butterfly
// stages, scale down, find the largest coefficient while the block waits, multiply thresholds by the scale, compare,
// pack. All blocks are encoded here, also those with huge words, infinities or NaNs, and the shorter ones at a packet's
// end. m_axis_tuser beside m_axis_tlast is an error: s_axis_tkeep was not whole words from the first on, or a beat
// before the last one was not full. Every 32 blocks that are not transformed take one cycle more.
module rht_encoder (
    input  logic         clk,
    input  logic         rst,
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
    output logic         m_axis_tuser
);
    // Enabled cycles from the gathered beat to each step's result.
    localparam int TRANSFORMED = 49, HALVED = TRANSFORMED + 1, BEAT_MOST = HALVED + 2, BLOCK_MOST = BEAT_MOST + 1;
    localparam int WAITED = HALVED + 11, MULTIPLIED = WAITED + 3, COMPARED = MULTIPLIED + 1, PACKED = COMPARED + 1;
    localparam logic [127:0] SIGNS = 128'h9e3779b97f4a7c15f39cc0605cedc834;
    localparam logic [15:0] LEAST_SCALE = 16'h0d80;
    localparam logic [7*32-1:0] THRESHOLDS = {
        32'h3f60eabc, 32'h3f2cb5a1, 32'h3f06a30f, 32'h3ecdf897, 32'h3e95cf62, 32'h3e43c377, 32'h3dc187ac
    };

    logic        packer_ready, enable;
    logic [15:0] kept;
    logic        is_bad;
    logic [511:0] masked;
    words_kept keep_of_words (.keep(s_axis_tkeep), .last(s_axis_tlast), .kept, .is_bad);
    for (genvar i = 0; i < 16; i++) begin : mask
        assign masked[32*i +: 32] = kept[i] ? s_axis_tdata[32*i +: 32] : 32'd0;
    end

    // What a beat is, along the pipeline.
    logic [PACKED:0]        valid, ends, last, error;
    logic [COMPARED:0]      is_huge;
    logic [COMPARED:0][2:0] log, index, count;
    logic [511:0]           words;
    rht_gather gather (
        .clk, .rst, .s_words(masked), .s_kept(kept), .s_last(s_axis_tlast), .s_error(is_bad), .s_valid(s_axis_tvalid),
        .s_ready(s_axis_tready), .enable, .m_valid(valid[0]), .m_words(words), .m_log(log[0]), .m_index(index[0]),
        .m_count(count[0]), .m_is_huge(is_huge[0]), .m_is_end(ends[0]), .m_last(last[0]),
        .m_error(error[0])
    );
    assign enable = packer_ready || !valid[PACKED];
    always_ff @(posedge clk) begin
        if (enable) begin
            ends[PACKED:1] <= ends[PACKED-1:0];
            last[PACKED:1] <= last[PACKED-1:0];
            error[PACKED:1] <= error[PACKED-1:0];
            is_huge[COMPARED:1] <= is_huge[COMPARED-1:0];
            log[COMPARED:1] <= log[COMPARED-1:0];
            index[COMPARED:1] <= index[COMPARED-1:0];
            count[COMPARED:1] <= count[COMPARED-1:0];
        end
        if (rst) valid[PACKED:1] <= '0;
        else if (enable) valid[PACKED:1] <= valid[PACKED-1:0];
    end

    // Coefficients: signs, transform, times 2^-floor(log / 2).
    logic [511:0] signed_words, transformed, coefficients;
    for (genvar i = 0; i < 16; i++) begin : lane
        assign signed_words[32*i +: 32] = words[32*i +: 32] ^ {SIGNS[{index[0], 4'(i)}], 31'd0};
        float_halve halve (
            .clk, .enable, .a(transformed[32*i +: 32]), .halvings({1'b0, log[TRANSFORMED][2:1]}),
            .q(coefficients[32*i +: 32])
        );
    end
    rht_transform #(.LATENCY(TRANSFORMED)) transform (
        .clk, .enable, .s_words(signed_words), .s_index(index[0]), .s_log(log[0]), .m_words(transformed)
    );

    // The scale: the largest magnitude of a beat in two stages, then of the block, rounded up to 8 bits with a
    // tolerance.
    logic [3:0][30:0] of_four;
    logic [30:0]      beat_most, block_most;
    logic [15:0]      rounded;
    function automatic logic [30:0] larger(input logic [30:0] a, input logic [30:0] b);
        larger = a > b ? a : b;
    endfunction
    for (genvar i = 0; i < 4; i++) begin : group
        logic [30:0] low, high;
        assign low = larger(coefficients[128*i +: 31], coefficients[128*i + 32 +: 31]);
        assign high = larger(coefficients[128*i + 64 +: 31], coefficients[128*i + 96 +: 31]);
        always_ff @(posedge clk) if (enable) of_four[i] <= larger(low, high);
    end
    always_ff @(posedge clk) if (enable) begin
        beat_most <= larger(larger(of_four[0], of_four[1]), larger(of_four[2], of_four[3]));
        if (index[BEAT_MOST] == 0 || beat_most > block_most) block_most <= beat_most;
    end
    assign rounded = 16'(({1'b0, block_most} + 32'h0000feff) >> 16);

    // Scales wait, by block, until the block has passed the delay line.
    logic [15:0] scales[16];
    logic [15:0] scale;
    logic [3:0]  scale_in, scale_out;
    always_ff @(posedge clk) begin
        if (enable) scales[scale_in] <= rounded < LEAST_SCALE ? 16'd0 : rounded;
        if (rst) {scale_in, scale_out} <= '0;
        else if (enable) begin
            if (valid[BLOCK_MOST] && ends[BLOCK_MOST]) scale_in <= scale_in + 4'd1;
            if (valid[WAITED] && ends[WAITED]) scale_out <= scale_out + 4'd1;
        end
    end
    assign scale = scales[scale_out];

    // Codes: how many thresholds the magnitude reaches, and the sign.
    logic [511:0]     waiting;
    logic [6:0][30:0] thresholds;
    logic [63:0]      codes;
    delay_line #(.DEPTH(MULTIPLIED - HALVED)) coefficient_line (.clk, .rst, .enable, .d(coefficients), .q(waiting));
    for (genvar t = 0; t < 7; t++) begin : threshold
        rht_product #(.FACTOR(THRESHOLDS[32*t +: 32])) times_scale (
            .clk, .enable, .scale(scale[14:0]), .product(thresholds[t])
        );
    end
    for (genvar i = 0; i < 16; i++) begin : word
        logic [30:0] magnitude;
        logic [6:0]  reaches;
        logic        sign, is_4, is_2, is_1;
        assign magnitude = waiting[32*i +: 31];
        always_ff @(posedge clk) if (enable) begin
            for (int t = 0; t < 7; t++) reaches[t] <= magnitude >= thresholds[t];
            sign <= waiting[32*i + 31] && magnitude != 0;
        end
        assign is_4 = reaches[3];
        assign is_2 = is_4 ? reaches[5] : reaches[1];
        assign is_1 = is_4 ? (is_2 ? reaches[6] : reaches[4]) : (is_2 ? reaches[2] : reaches[0]);
        assign codes[4*i +: 4] = {sign, is_4, is_2, is_1};
    end

    // Chunks: scale and codes, or nothing more; a block that is not transformed has FFFF and its words.
    logic [511:0]     plain;
    logic [4:1][15:0] scale_after;
    logic [527:0]     chunk, body;
    logic [6:0]       chunk_bytes, body_bytes;
    logic [2:0]       now;
    logic             is_first;
    delay_line #(.DEPTH(COMPARED)) word_line (.clk, .rst, .enable, .d(words), .q(plain));
    assign now = log[COMPARED];
    assign is_first = index[COMPARED] == 0 && now != 0;
    always_comb begin
        if (now == 0) {body, body_bytes} = {16'd0, plain, 2'd0, count[COMPARED], 2'd0};
        else if (is_huge[COMPARED]) {body, body_bytes} = {16'd0, plain, now == 3'd3 ? 7'd32 : 7'd64};
        else if (scale_after[4] == 0) {body, body_bytes} = {528'd0, 7'd0};
        else if (now == 3'd3) {body, body_bytes} = {496'd0, codes[31:0], 7'd4};
        else {body, body_bytes} = {464'd0, codes, 7'd8};
    end
    always_ff @(posedge clk) if (enable) begin
        scale_after <= {scale_after[3:1], scale};
        chunk <= is_first ? {body[511:0], is_huge[COMPARED] ? 16'hffff : scale_after[4]} : body;
        chunk_bytes <= body_bytes + (is_first ? 7'd2 : 7'd0);
    end

    body_packer #(.CHUNK(66)) packer (
        .clk, .rst, .s_chunk(chunk), .s_bytes({1'b0, chunk_bytes}), .s_valid(valid[PACKED]), .s_ready(packer_ready),
        .s_last(last[PACKED]), .s_error(error[PACKED]), .m_axis_tdata, .m_axis_tkeep, .m_axis_tvalid, .m_axis_tready,
        .m_axis_tlast, .m_axis_tuser
    );
endmodule
