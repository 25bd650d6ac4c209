// Alignment Unit: Li et al. (MICRO 2018), Section VI-A. Bit vectors of variable size become full beats of 256 bits.
// Bytes that do not fill a beat are held; the next vector is appended behind them. A packet's last beat may be shorter;
// the next packet begins a beat of its own in the cycle in which that one leaves. At least one of both ports moves in
// every cycle in which its partner allows it: a vector is refused only while a full beat leaves.
module alignment_unit #(
    parameter int BYTES = 34  // of the longest vector
) (
    input logic clk,
    input logic rst,
    input logic s_valid,
    output logic s_ready,
    input logic [8*BYTES-1:0] s_data,  // zero behind `s_size` bytes
    input logic [5:0] s_size,          // at least 1
    input logic s_last,
    output logic [255:0] m_axis_tdata,
    output logic [31:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input logic m_axis_tready,
    output logic m_axis_tlast
);
    localparam int HELD = 31 + BYTES;
    logic [8*HELD-1:0] held;
    logic [6:0] count;  // bytes held; what is behind them is zero
    logic is_flushing;  // the packet ends with these bytes

    wire fires = m_axis_tvalid && m_axis_tready;
    assign m_axis_tvalid = count >= 7'd32 || is_flushing;
    assign m_axis_tlast = is_flushing && count <= 7'd32;
    assign m_axis_tdata = held[255:0];
    assign m_axis_tkeep = m_axis_tlast ? 32'hffffffff >> (7'd32 - count) : 32'hffffffff;
    assign s_ready = is_flushing ? fires && m_axis_tlast : count < 7'd32 || (fires && count < 7'd64);

    // What is left when a beat has gone has the same place in its beat, unless a packet has ended.
    wire [4:0] place = is_flushing ? 5'd0 : count[4:0];
    wire [8*HELD-1:0] kept = fires ? {256'd0, held[8*HELD-1:256]} : held;
    wire [6:0] kept_count = !fires ? count : m_axis_tlast ? 7'd0 : count - 7'd32;
    wire [8*HELD-1:0] appended = {248'd0, s_data} << {place, 3'd0};

    always_ff @(posedge clk) begin
        if (rst) begin
            held <= '0;
            count <= 7'd0;
            is_flushing <= 1'b0;
        end else if (s_valid && s_ready) begin
            held <= kept | appended;
            count <= kept_count + {1'b0, s_size};
            is_flushing <= s_last;
        end else begin
            held <= kept;
            count <= kept_count;
            is_flushing <= is_flushing && !(fires && m_axis_tlast);
        end
    end
endmodule
