// A window on the bytes of a body: shows the next TAKE bytes of a packet, wherever they lie in its 512-bit beats, to a
// decoder that takes as many of them as its block has (docs/FORMAT.md).
//
// Rules: two beats are held, and a third behind them, so that s_axis_tready depends on no input of this cycle. `take`
// removes take_bytes (up to TAKE, and no more than `count`); `drop` removes everything that is held. Beats of the next
// packet are held back until `drop` while `ended`. `is_bad`: a beat before the last one was not full, or bytes between
// others are missing. `starts` in the cycle in which a packet's first beat is taken in.
module body_window #(
    parameter int TAKE = 65
) (
    input  logic              clk,
    input  logic              rst,
    input  logic [511:0]      s_axis_tdata,
    input  logic [63:0]       s_axis_tkeep,
    input  logic              s_axis_tvalid,
    output logic              s_axis_tready,
    input  logic              s_axis_tlast,
    output logic              starts,
    output logic [8*TAKE-1:0] window,
    output logic [7:0]        count,
    output logic              ended,
    output logic              is_bad,
    input  logic              take,
    input  logic [6:0]        take_bytes,
    input  logic              drop
);
    localparam int BEAT = 512 + 7 + 1 + 1; // data, bytes, last, bad

    // Bytes of a beat: bytes that are kept are the first ones, so their number is where the ones end.
    logic [6:0]  s_bytes;
    logic [30:0] of_32;
    logic [14:0] of_16;
    logic [6:0]  of_8;
    logic [2:0]  of_4;
    logic        s_bad;
    assign of_32 = s_axis_tkeep[31] ? s_axis_tkeep[62:32] : s_axis_tkeep[30:0];
    assign of_16 = of_32[15] ? of_32[30:16] : of_32[14:0];
    assign of_8 = of_16[7] ? of_16[14:8] : of_16[6:0];
    assign of_4 = of_8[3] ? of_8[6:4] : of_8[2:0];
    assign s_bytes = s_axis_tkeep[63] ? 7'd64
        : {1'b0, s_axis_tkeep[31], of_32[15], of_16[7], of_8[3], of_4[1], of_4[1] ? of_4[2] : of_4[0]};
    assign s_bad = |(s_axis_tkeep[63:1] & ~s_axis_tkeep[62:0]) || (!s_axis_tlast && !s_axis_tkeep[63]);

    logic [BEAT-1:0] s_beat, spare, coming;
    logic            spare_valid, coming_valid, loads;
    assign s_beat = {s_axis_tdata, s_bytes, s_axis_tlast, s_bad};
    assign s_axis_tready = !spare_valid;
    assign coming = spare_valid ? spare : s_beat;
    assign coming_valid = spare_valid || s_axis_tvalid;

    // The beats in the window: the first from byte `at` on, then the second.
    logic [511:0]  first, second;
    logic [6:0]    first_bytes, second_bytes;
    logic          first_valid, second_valid, amid;
    logic [5:0]    at;
    logic [7:0]    at_after;
    assign window = (8*TAKE)'({second, first} >> {at, 3'd0});
    assign count = !first_valid ? 8'd0
        : (second_valid ? 8'd64 + {1'b0, second_bytes} : {1'b0, first_bytes}) - {2'd0, at};
    assign at_after = {2'd0, at} + (take ? {1'b0, take_bytes} : 8'd0);

    // What is left after this cycle decides where a beat that comes in goes.
    logic crosses, first_left, second_left;
    assign crosses = |at_after[7:6];
    assign first_left = first_valid && !drop && (!crosses || (second_valid && !at_after[7]));
    assign second_left = second_valid && !drop && !crosses;
    assign loads = coming_valid && !ended && !(first_left && second_left);
    assign starts = loads && !amid;

    always_ff @(posedge clk) begin
        if (!spare_valid) spare <= s_beat;
        if (crosses) {first, first_bytes} <= {second, second_bytes};
        if (loads && !first_left) {first, first_bytes} <= coming[BEAT-1:2];
        if (loads && first_left) {second, second_bytes} <= coming[BEAT-1:2];
        if (rst) begin
            {spare_valid, first_valid, second_valid, ended, is_bad, amid} <= '0;
            at <= '0;
        end else begin
            spare_valid <= !loads && (spare_valid || s_axis_tvalid);
            first_valid <= first_left || loads;
            second_valid <= second_left || (loads && first_left);
            at <= drop ? 6'd0 : at_after[5:0];
            if (loads) begin
                amid <= !coming[1];
                ended <= coming[1];
                is_bad <= (is_bad && amid) || coming[0];
            end else if (drop && ended) ended <= 1'b0;
        end
    end
endmodule
