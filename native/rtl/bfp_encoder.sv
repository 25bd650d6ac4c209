// BFP compression engine of the AI smart NIC (Ma et al., arXiv:2204.10943, section IV-B and Table I; docs/FORMAT.md,
// codec 3): float32 words in, the bytes of a body out, sixteen lanes, one 512-bit beat a cycle.
//
// Rules: a packet of words becomes a packet of one body, with the bytes of native/codecs/bfp.c, irregular blocks
// included. magnitude_bits (M, 3 to 15) is taken with each beat and constant over a packet. m_axis_tuser beside
// m_axis_tlast is an error: s_axis_tkeep was not whole words from the first on, or a beat before the last one was not
// full. Blocks with infinities or NaNs have 65 bytes, so that each 64 of them take one cycle more.
module bfp_encoder (
    input  logic         clk,
    input  logic         rst,
    input  logic [3:0]   magnitude_bits,
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
    localparam int STAGES = 6; // of bfp_quantise

    logic packer_ready, enable;
    assign enable = packer_ready || !valid[STAGES+1];
    assign s_axis_tready = enable;

    logic [15:0] kept;
    logic        is_bad;
    words_kept keep_of_words (.keep(s_axis_tkeep), .last(s_axis_tlast), .kept, .is_bad);

    logic [511:0] words;
    logic [255:0] codes;
    logic [7:0]   shared;
    logic [3:0]   bits;
    logic         last, error, empty;
    bfp_quantise #(.FLAGS(3)) quantise (
        .clk, .enable, .s_words(s_axis_tdata), .s_kept(kept), .s_magnitude_bits(magnitude_bits),
        .s_flags({s_axis_tlast, is_bad, !kept[0]}), .m_words(words), .m_codes(codes), .m_shared(shared),
        .m_magnitude_bits(bits), .m_flags({last, error, empty})
    );

    logic [STAGES+1:1] valid;
    logic              chunk_last, chunk_error;
    logic [519:0]      chunk;
    logic [6:0]        chunk_bytes;
    always_ff @(posedge clk) begin
        if (enable) {chunk_last, chunk_error} <= {last, error};
        if (rst) valid <= '0;
        else if (enable) valid <= {valid[STAGES:1], s_axis_tvalid};
    end
    bfp_pack pack (
        .clk, .enable, .s_words(words), .s_codes(codes), .s_shared(shared), .s_magnitude_bits(bits),
        .s_empty(empty), .m_chunk(chunk), .m_bytes(chunk_bytes)
    );

    body_packer #(.CHUNK(65)) packer (
        .clk, .rst, .s_chunk(chunk), .s_bytes({1'b0, chunk_bytes}), .s_valid(valid[STAGES+1]), .s_ready(packer_ready),
        .s_last(chunk_last), .s_error(chunk_error), .m_axis_tdata, .m_axis_tkeep, .m_axis_tvalid, .m_axis_tready,
        .m_axis_tlast, .m_axis_tuser
    );
endmodule
