// What follows the compression blocks in both encoders: tags and vectors of eight words become a burst, with the tags
// first. Li et al. (MICRO 2018), Section VI-A and Fig. 9. One burst a cycle, two cycles behind the words.
module burst_joiner (
    input logic clk,
    input logic rst,
    input logic s_valid,
    output logic s_ready,
    input logic [15:0] s_tags,
    input logic [255:0] s_vectors,
    input logic s_last,
    output logic m_valid,
    input logic m_ready,
    output logic [271:0] m_burst,
    output logic [5:0] m_size,  // bytes
    output logic m_last
);
    logic [15:0] tags;
    logic [255:0] vectors;
    logic is_blocks, is_blocks_last;
    wire blocks_move = !m_valid || m_ready;
    assign s_ready = !is_blocks || blocks_move;

    wire [255:0] joined;
    wire [5:0] size;
    shifter_tree tree (.tags, .vectors, .joined, .size);

    always_ff @(posedge clk) begin
        if (rst) begin
            is_blocks <= 1'b0;
            m_valid <= 1'b0;
        end else begin
            if (s_ready) begin
                is_blocks <= s_valid;
                is_blocks_last <= s_last;
                tags <= s_tags;
                vectors <= s_vectors;
            end
            if (blocks_move) begin
                m_valid <= is_blocks;
                m_last <= is_blocks_last;
                m_burst <= {joined, tags};
                m_size <= size + 6'd2;
            end
        end
    end
endmodule
