// Group buffer of codec 2 (`bounded`, docs/FORMAT.md): eight bursts are preceded by a byte that says which of them have
// a tag word that is not zero, so they are gathered before that byte is known. Stands between the shifter tree and the
// Alignment Unit of Li et al. (MICRO 2018), Fig. 9. Bursts without tags are never stored: a silent group leaves as its
// byte of flags, in one cycle. The memory has two groups, so that one is written while the other one is read: one burst
// a cycle.
module group_buffer (
    input logic clk,
    input logic rst,
    input logic s_valid,
    output logic s_ready,
    input logic [271:0] s_burst,  // tag word and vectors, zero behind `s_size` bytes
    input logic [5:0] s_size,
    input logic s_last,
    output logic m_valid,
    input logic m_ready,
    output logic [279:0] m_data,  // the flags, before a group's first burst, and a burst
    output logic [5:0] m_size,
    output logic m_last
);
    // Bursts, and groups whose flags are known. A group that is not complete has at most eight of sixteen places, so
    // the memory cannot fill up before a group is complete.
    logic [277:0] bursts[16];
    logic [8:0] complete[4];  // last, flags
    logic [4:0] written, read;
    logic [2:0] groups_written, groups_read;
    logic [6:0] flags;
    logic [2:0] place;

    wire is_silent = s_burst[15:0] == 16'd0;
    wire is_full = written[3:0] == read[3:0] && written[4] != read[4];
    wire are_groups_full = groups_written[1:0] == groups_read[1:0] && groups_written[2] != groups_read[2];
    wire takes = s_valid && s_ready;
    wire is_complete = place == 3'd7 || s_last;
    wire [7:0] all_flags = {1'b0, flags} | {7'd0, !is_silent} << place;
    assign s_ready = !is_full && !are_groups_full;

    always_ff @(posedge clk) begin
        if (rst) begin
            written <= 5'd0;
            groups_written <= 3'd0;
            flags <= 7'd0;
            place <= 3'd0;
        end else if (takes) begin
            if (!is_silent) written <= written + 5'd1;
            if (is_complete) groups_written <= groups_written + 3'd1;
            flags <= is_complete ? 7'd0 : all_flags[6:0];
            place <= is_complete ? 3'd0 : place + 3'd1;
        end
    end
    always_ff @(posedge clk) begin
        if (takes && !is_silent) bursts[written[3:0]] <= {s_size, s_burst};
        if (takes && is_complete) complete[groups_written[1:0]] <= {s_last, all_flags};
    end

    // Reading: `left` are the flags of bursts that have not left yet.
    wire [8:0] group = complete[groups_read[1:0]];
    wire [277:0] burst = bursts[read[3:0]];
    logic is_amid;
    logic [7:0] left;
    wire [7:0] here = is_amid ? left : group[7:0];
    wire [7:0] behind = here & (here - 8'd1);  // without the lowest one
    wire has_burst = here != 8'd0;
    wire [271:0] bytes = has_burst ? burst[271:0] : 272'd0;
    wire [5:0] bytes_size = has_burst ? burst[277:272] : 6'd0;

    assign m_valid = groups_written != groups_read;
    assign m_last = group[8] && behind == 8'd0;
    assign m_data = is_amid ? {8'd0, bytes} : {bytes, group[7:0]};
    assign m_size = bytes_size + {5'd0, !is_amid};

    always_ff @(posedge clk) begin
        if (rst) begin
            read <= 5'd0;
            groups_read <= 3'd0;
            is_amid <= 1'b0;
        end else if (m_valid && m_ready) begin
            if (has_burst) read <= read + 5'd1;
            if (behind == 8'd0) groups_read <= groups_read + 3'd1;
            is_amid <= behind != 8'd0;
            left <= behind;
        end
    end
endmodule
