// Sixteen float32 adders between two streams and one: the reduction unit of the AI smart NIC (Ma et al.,
// arXiv:2204.10943, section IV-A; 16 lanes of a 512-bit interface, section V-A).
//
// Rules: beats are added in pairs, one pair a cycle; a's word is the first operand. Both packets must have the same
// words and end together: otherwise the sum ends where the first of them does, with m_axis_tuser (error) beside
// m_axis_tlast, and the rest of the longer one is dropped. Seven cycles lead from a pair of beats to its sum.
module float_add_lanes #(
    parameter int LANES = 16,
    parameter logic [31:0] INVALID = 32'hffc00000
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [32*LANES-1:0] a_axis_tdata,
    input  logic [4*LANES-1:0]  a_axis_tkeep,
    input  logic                a_axis_tvalid,
    output logic                a_axis_tready,
    input  logic                a_axis_tlast,
    input  logic [32*LANES-1:0] b_axis_tdata,
    input  logic [4*LANES-1:0]  b_axis_tkeep,
    input  logic                b_axis_tvalid,
    output logic                b_axis_tready,
    input  logic                b_axis_tlast,
    output logic [32*LANES-1:0] m_axis_tdata,
    output logic [4*LANES-1:0]  m_axis_tkeep,
    output logic                m_axis_tvalid,
    input  logic                m_axis_tready,
    output logic                m_axis_tlast,
    output logic                m_axis_tuser
);
    localparam int STAGES = 6;

    logic enable, takes, drops_a, drops_b;
    assign enable = !m_axis_tvalid || m_axis_tready;
    assign takes = a_axis_tvalid && b_axis_tvalid && !drops_a && !drops_b;
    assign a_axis_tready = drops_a || (enable && b_axis_tvalid && !drops_b);
    assign b_axis_tready = drops_b || (enable && a_axis_tvalid && !drops_a);

    // A packet that is longer than its partner is dropped up to its end.
    always_ff @(posedge clk) begin
        if (rst) {drops_a, drops_b} <= 2'b00;
        else begin
            if (takes && enable) {drops_a, drops_b} <= {b_axis_tlast && !a_axis_tlast, a_axis_tlast && !b_axis_tlast};
            if (drops_a && a_axis_tvalid && a_axis_tlast) drops_a <= 1'b0;
            if (drops_b && b_axis_tvalid && b_axis_tlast) drops_b <= 1'b0;
        end
    end

    // Operands are registered, so that ordering them does not lengthen the path from the streams.
    logic [32*LANES-1:0] a, b, sums;
    always_ff @(posedge clk) if (enable) {a, b} <= {a_axis_tdata, b_axis_tdata};

    for (genvar i = 0; i < LANES; i++) begin : lane
        float_add #(.INVALID(INVALID)) adder (
            .clk, .enable, .a(a[32*i +: 32]), .b(b[32*i +: 32]), .sum(sums[32*i +: 32])
        );
    end

    logic [STAGES:0] valid, last, error;
    logic [STAGES:0][4*LANES-1:0] keep;
    logic differs, is_bad;
    assign differs = a_axis_tlast != b_axis_tlast || a_axis_tkeep != b_axis_tkeep;
    always_ff @(posedge clk) begin
        if (enable) begin
            last <= {last[STAGES-1:0], a_axis_tlast || b_axis_tlast};
            error <= {error[STAGES-1:0], differs || is_bad};
            keep <= {keep[STAGES-1:0], a_axis_tkeep & b_axis_tkeep};
        end
        if (rst) valid <= '0;
        else if (enable) valid <= {valid[STAGES-1:0], takes};
        // An error within a packet is remembered for its last beat.
        if (rst) is_bad <= 1'b0;
        else if (takes && enable) is_bad <= (differs || is_bad) && !(a_axis_tlast || b_axis_tlast);
    end

    assign m_axis_tdata = sums;
    assign m_axis_tkeep = keep[STAGES];
    assign m_axis_tvalid = valid[STAGES];
    assign m_axis_tlast = last[STAGES];
    assign m_axis_tuser = error[STAGES] && last[STAGES];
endmodule
