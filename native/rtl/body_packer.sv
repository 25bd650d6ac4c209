// Packs chunks of bytes, each of any length, into full 512-bit beats: the alignment unit behind an encoder, which makes
// of blocks of varying size one body without gaps (docs/FORMAT.md).
//
// Rules: bytes of a chunk from s_bytes on must be zero. A chunk is taken in each cycle, except while more than a beat
// is left of those before it, or the end of a packet. The last beat has m_axis_tlast, and the error of any chunk of its
// packet as m_axis_tuser; it is null (m_axis_tkeep is zero) where the last chunk is empty and those before it filled
// whole beats.
module body_packer #(
    parameter int CHUNK = 65,
    parameter int BEAT = 64
) (
    input  logic                     clk,
    input  logic                     rst,
    input  logic [8*CHUNK-1:0]       s_chunk,
    input  logic [$clog2(CHUNK):0]   s_bytes,
    input  logic                     s_valid,
    output logic                     s_ready,
    input  logic                     s_last,
    input  logic                     s_error,
    output logic [8*BEAT-1:0]        m_axis_tdata,
    output logic [BEAT-1:0]          m_axis_tkeep,
    output logic                     m_axis_tvalid,
    input  logic                     m_axis_tready,
    output logic                     m_axis_tlast,
    output logic                     m_axis_tuser
);
    localparam int BITS = $clog2(CHUNK + BEAT);
    localparam int OFFSET = $clog2(BEAT);

    // Bytes that wait for more, or for their turn to leave.
    logic [8*CHUNK-1:0] rest;
    logic [BITS-1:0]    count;
    logic               ends;
    logic               error;

    logic is_free, drains, takes;
    assign is_free = !m_axis_tvalid || m_axis_tready;
    assign drains = ends || count >= BITS'(BEAT);
    assign s_ready = is_free && !drains;
    assign takes = s_ready && s_valid;

    logic [8*(CHUNK+BEAT)-1:0] merged;
    logic [BITS-1:0]           total;
    logic                      is_last, is_full;
    assign merged = {{8*BEAT{1'b0}}, rest}
        | (takes ? {{8*BEAT{1'b0}}, s_chunk} << {count[OFFSET-1:0], 3'd0} : {8*(CHUNK+BEAT){1'b0}});
    assign total = takes ? count + BITS'(s_bytes) : count;
    assign is_full = total >= BITS'(BEAT);
    assign is_last = (takes ? s_last : ends) && total <= BITS'(BEAT);

    always_ff @(posedge clk) begin
        if (is_free) begin
            m_axis_tdata <= merged[8*BEAT-1:0];
            m_axis_tlast <= is_last;
            m_axis_tuser <= is_last && (error || (takes && s_error));
            for (int i = 0; i < BEAT; i++) m_axis_tkeep[i] <= total > BITS'(i);
        end
        if (takes || (is_free && drains))
            rest <= is_full || is_last ? merged[8*BEAT +: 8*CHUNK] : merged[8*CHUNK-1:0];
        if (rst) begin
            m_axis_tvalid <= 1'b0;
            rest <= '0;
            count <= '0;
            ends <= 1'b0;
            error <= 1'b0;
        end else if (is_free) begin
            m_axis_tvalid <= is_full || is_last;
            count <= is_last ? '0 : is_full ? total - BITS'(BEAT) : total;
            ends <= (takes ? s_last : ends) && !is_last;
            error <= (error || (takes && s_error)) && !is_last;
        end
    end
endmodule
