// Packet path of a NIC: Li et al. (MICRO 2018), Section VI-A and Fig. 8. Frames in, frames out. Those of TCP over IPv4
// whose ToS is the tag, and that carry data, have their payload encoded (DECODES = 0, on the way out) or decoded (1, on
// the way in), in the form of docs/FORMAT.md: a header of 12 bytes, the encoded words, and the last one to three bytes as
// they are. All other frames pass. The packets of the connection stay as many as they were ("packet" mode).
//
// Each frame is stored until its length is known. One frame at a time is in the engine, while the one before leaves;
// at 256 bits and 100 MHz that carries more than 10 Gbit/s. On the way out no body is sent RAW, so a sender cuts its
// segments to leave room for the longest body: 12 bytes, and 35 for each 32. On the way in RAW bodies pass, and
// malformed payloads are dropped with their frames, as frames are that end before their payload does or that are longer
// than half of the memory: `dropped` says so for one cycle.
module packet_path #(
    parameter bit DECODES = 1'b0,
    parameter bit IS_BOUNDED = 1'b1,  // codec 2; 0: codec 1
    parameter int BEATS = 1024        // of the memory
) (
    input logic clk,
    input logic rst,
    input logic [5:0] tag,  // the upper six bits of the ToS
    input logic [4:0] k,    // of the encoder
    output logic dropped,
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
    localparam logic [7:0] CODEC = IS_BOUNDED ? 8'd2 : 8'd1;
    localparam logic [15:0] MOST = 16'(BEATS * 16);  // bytes of a frame

    // The frame in work.
    logic is_busy, is_bad;
    wire begins, is_done, is_short, is_overrun;
    wire drops = is_busy && is_bad && is_done;
    wire [1023:0] header;
    wire [6:0] header_size;
    wire [15:0] payload_size;
    wire [255:0] p_data;
    wire [31:0] p_keep;
    wire p_valid, p_last, p_ready;
    frame_splitter #(
        .MORE(DECODES ? 12 : 0)
    ) splitter (
        .clk,
        .rst,
        .drop(drops),
        .tag,
        .may_begin(!is_busy),
        .begins,
        .s_axis_tdata,
        .s_axis_tkeep,
        .s_axis_tvalid,
        .s_axis_tready,
        .s_axis_tlast,
        .header,
        .header_size,
        .payload_size,
        .is_done,
        .is_short,
        .m_axis_tdata(p_data),
        .m_axis_tkeep(p_keep),
        .m_axis_tvalid(p_valid),
        .m_axis_tready(p_ready),
        .m_axis_tlast(p_last)
    );
    wire passes = header_size == 7'd0;

    // What the payload is: bytes for the engine (or to be copied), then a tail.
    logic is_malformed, is_raw;
    logic [15:0] body_size;
    logic [1:0] tail_size;
    logic [31:0] words;
    logic [4:0] engine_k;
    logic [95:0] payload_header;  // as it came, or as it leaves
    wire [6:0] tcp_end = DECODES ? header_size - 7'd12 : header_size;
    wire [15:0] encoded_size;
    if (DECODES) begin : decoding
        logic [95:0] f;
        wire [31:0] original = {f[8*4+:8], f[8*5+:8], f[8*6+:8], f[8*7+:8]};
        wire [31:0] encoded = {f[8*8+:8], f[8*9+:8], f[8*10+:8], f[8*11+:8]};
        wire [31:0] in_body = encoded - {30'd0, f[25:24]};
        wire has_flags = f[0], is_padded = f[1];
        wire are_sizes_good = has_flags ? encoded == original : original[1:0] == f[25:24] &&
            encoded >= {30'd0, f[25:24]} && (in_body == 32'd0) == (original < 32'd4);
        always_ff @(posedge clk) begin
            // Whole a cycle before the first byte behind it comes out of the splitter.
            f <= 96'(header >> {tcp_end, 3'd0});
        end
        assign is_raw = has_flags;
        assign is_malformed = f[7:2] != 6'b000100 || !(f[15:8] == CODEC || (is_raw && f[15:8] == 8'd0)) ||
            (f[15:8] == CODEC && (f[23:16] == 8'd0 || f[23:16] > 8'd23)) || f[31:26] != 6'd0 ||
            original[1:0] != f[25:24] || original == 32'd0 || original > {16'd0, MOST} || !are_sizes_good ||
            (is_padded ? encoded >= {16'd0, payload_size} : encoded != {16'd0, payload_size});
        assign body_size = is_raw ? encoded[15:0] : in_body[15:0];
        assign tail_size = is_raw || passes ? 2'd0 : f[25:24];
        assign words = {2'd0, original[31:2]};
        assign engine_k = f[20:16];
        assign payload_header = f;
    end else begin : encoding
        assign is_raw = 1'b0;
        assign is_malformed = 1'b0;
        assign body_size = {payload_size[15:2], 2'd0};
        assign tail_size = passes ? 2'd0 : payload_size[1:0];
        assign words = {18'd0, payload_size[15:2]};
        assign engine_k = k;
        assign payload_header = {encoded_size[7:0], encoded_size[15:8], 16'd0, payload_size[7:0], payload_size[15:8],
                                 16'd0, 6'd0, tail_size, 3'd0, k, CODEC, 8'h10};
    end
    wire to_engine = !passes && !is_raw;

    // Feeding. `fed` counts the bytes that the splitter has given.
    logic [15:0] fed;
    logic is_all;  // the payload's last byte has come
    logic [23:0] tail;
    logic [31:0] removed;
    wire engine_ready, copy_ready;
    wire has_more = passes || fed < body_size;
    wire [15:0] feed_left = body_size - fed;
    wire is_feed_last = passes ? p_last : feed_left <= 16'd32;
    wire [31:0] feed_keep = passes || feed_left >= 16'd32 ? p_keep : 32'hffffffff >> (6'd32 - feed_left[5:0]);
    wire is_refused = p_valid && !passes && is_malformed;
    wire feeds = p_valid && has_more && !is_bad && !is_refused;
    assign p_ready = is_bad || is_refused || !has_more || (to_engine ? engine_ready : copy_ready);
    wire p_fires = p_valid && p_ready;
    wire [31:0] p_sum;
    beat_sum sum_removed (.beat(p_data), .sum(p_sum));
    wire [31:0] header_sum;
    beat_sum sum_header (.beat(DECODES ? {160'd0, payload_header} : 256'd0), .sum(header_sum));
    always_ff @(posedge clk) begin
        if (rst || begins) begin
            fed <= 16'd0;
            is_all <= 1'b0;
            removed <= 32'd0;
        end else if (p_fires) begin
            fed <= fed + 16'd32;
            is_all <= p_last;
            removed <= removed + p_sum;
        end
        if (p_fires)
            for (int i = 0; i < 3; i++) begin
                if (body_size + 16'(i) >= fed && body_size + 16'(i) < fed + 16'd32)
                    tail[8*i+:8] <= p_data[{5'(body_size + 16'(i) - fed), 3'd0}+:8];
            end
    end

    // The engine.
    wire [255:0] e_data;
    wire [31:0] e_keep;
    wire e_valid, e_last, e_wrong, e_ready;
    wire engine_rst = rst || drops;
    wire engine_valid = feeds && to_engine;
    if (DECODES) begin : decoder
        wire e_error, unused_late;
        wire [31:0] unused_consumed;
        if (IS_BOUNDED) begin : codec_2
            bounded_decoder engine (
                .clk, .rst(engine_rst), .k(engine_k), .words,
                .s_axis_tdata(p_data), .s_axis_tkeep(feed_keep), .s_axis_tvalid(engine_valid),
                .s_axis_tready(engine_ready), .s_axis_tlast(is_feed_last),
                .m_axis_tdata(e_data), .m_axis_tkeep(e_keep), .m_axis_tvalid(e_valid), .m_axis_tready(e_ready),
                .m_axis_tlast(e_last), .m_axis_tuser(e_error), .is_late(unused_late), .consumed(unused_consumed)
            );
        end else begin : codec_1
            inceptionn_decoder engine (
                .clk, .rst(engine_rst), .words,
                .s_axis_tdata(p_data), .s_axis_tkeep(feed_keep), .s_axis_tvalid(engine_valid),
                .s_axis_tready(engine_ready), .s_axis_tlast(is_feed_last),
                .m_axis_tdata(e_data), .m_axis_tkeep(e_keep), .m_axis_tvalid(e_valid), .m_axis_tready(e_ready),
                .m_axis_tlast(e_last), .m_axis_tuser(e_error), .is_late(unused_late), .consumed(unused_consumed)
            );
            wire _unused = &{1'b0, engine_k};
        end
        assign e_wrong = e_valid && e_last && e_error;
        wire _unused_here = &{1'b0, unused_late, unused_consumed, k, encoded_size};
    end else begin : encoder
        if (IS_BOUNDED) begin : codec_2
            bounded_encoder engine (
                .clk, .rst(engine_rst), .k(engine_k),
                .s_axis_tdata(p_data), .s_axis_tkeep(feed_keep), .s_axis_tvalid(engine_valid),
                .s_axis_tready(engine_ready), .s_axis_tlast(is_feed_last),
                .m_axis_tdata(e_data), .m_axis_tkeep(e_keep), .m_axis_tvalid(e_valid), .m_axis_tready(e_ready),
                .m_axis_tlast(e_last)
            );
        end else begin : codec_1
            inceptionn_encoder engine (
                .clk, .rst(engine_rst), .k(engine_k),
                .s_axis_tdata(p_data), .s_axis_tkeep(feed_keep), .s_axis_tvalid(engine_valid),
                .s_axis_tready(engine_ready), .s_axis_tlast(is_feed_last),
                .m_axis_tdata(e_data), .m_axis_tkeep(e_keep), .m_axis_tvalid(e_valid), .m_axis_tready(e_ready),
                .m_axis_tlast(e_last)
            );
        end
        assign e_wrong = 1'b0;
        wire _unused_here = &{1'b0, words};
    end

    // The new body: what the engine makes, or a copy, and the tail, joined by an alignment unit.
    logic in_tail;
    wire has_body = passes || body_size != 16'd0;
    wire i_ready;
    wire is_source = has_body && !in_tail;
    wire source_valid = to_engine ? e_valid && !e_wrong : feeds;
    wire source_last = to_engine ? e_last : is_feed_last;
    assign e_ready = is_bad || (i_ready && is_source);
    assign copy_ready = i_ready && is_source;
    // Without words there is a tail alone, of which the payload's only beat has told.
    wire i_valid = is_busy && !is_bad && (is_source ? source_valid : tail_size != 2'd0 && is_all && !is_sent);
    wire i_last = is_source ? source_last && tail_size == 2'd0 : 1'b1;
    wire [31:0] i_keep = is_source ? (to_engine ? e_keep : feed_keep) : 32'h00000007 >> (2'd3 - tail_size);
    wire [255:0] i_raw = is_source ? (to_engine ? e_data : p_data) : {232'd0, tail};
    logic is_sent;
    logic [255:0] i_data;
    logic [5:0] i_size;
    always_comb begin
        i_size = 6'd0;
        for (int i = 0; i < 32; i++) begin
            i_data[8*i+:8] = i_keep[i] ? i_raw[8*i+:8] : 8'd0;
            i_size = i_size + {5'd0, i_keep[i]};
        end
    end
    logic [15:0] made;  // bytes
    assign encoded_size = made;
    always_ff @(posedge clk) begin
        if (rst || begins) begin
            in_tail <= 1'b0;
            is_sent <= 1'b0;
            made <= 16'd0;
        end else if (i_valid && i_ready) begin
            made <= made + {10'd0, i_size};
            in_tail <= in_tail || (is_source && source_last);
            is_sent <= i_last;
        end
    end

    wire [255:0] b_data;
    wire [31:0] b_keep;
    wire b_valid, b_ready, b_last;
    alignment_unit #(
        .BYTES(32)
    ) joiner (
        .clk,
        .rst(engine_rst),
        .s_valid(i_valid),
        .s_ready(i_ready),
        .s_data(i_data),
        .s_size(i_size),
        .s_last(i_last),
        .m_axis_tdata(b_data),
        .m_axis_tkeep(b_keep),
        .m_axis_tvalid(b_valid),
        .m_axis_tready(b_ready),
        .m_axis_tlast(b_last)
    );
    frame_assembler #(
        .BEATS(BEATS)
    ) assembler (
        .clk,
        .rst,
        .drop(drops),
        .is_overrun,
        .s_axis_tdata(b_data),
        .s_axis_tkeep(b_keep),
        .s_axis_tvalid(b_valid && !is_bad),
        .s_axis_tready(b_ready),
        .s_axis_tlast(b_last),
        .may_end(is_all),
        .header,
        .header_size(passes ? 7'd0 : tcp_end),
        .more(payload_header),
        .more_size(passes || DECODES ? 4'd0 : 4'd12),
        .removed(removed + header_sum),
        .m_axis_tdata,
        .m_axis_tkeep,
        .m_axis_tvalid,
        .m_axis_tready,
        .m_axis_tlast
    );

    wire ends = b_valid && !is_bad && b_ready && b_last;
    wire is_hopeless = is_done && !passes && (is_short || payload_size == 16'd0);
    always_ff @(posedge clk) begin
        if (rst) begin
            is_busy <= 1'b0;
            is_bad <= 1'b0;
            dropped <= 1'b0;
        end else begin
            is_busy <= begins || (is_busy && !ends && !drops);
            is_bad <= is_busy && !ends && !drops && (is_bad || is_refused || e_wrong || is_hopeless || is_overrun);
            dropped <= drops;
        end
    end
endmodule
