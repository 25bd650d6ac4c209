"""Performance on this machine: what `softnic bench` measures, each figure beside a limit measured in the same run.

Machines differ and other processes disturb, so figures are medians over rounds, and every round measures the limit too.
Compare the shares of the limit between machines, not the absolute figures.

- `codec` with `compressors`, `stream` with `udp_baseline`, `allreduce`, `overlap`, `latency`, `connections`: one
  benchmark each. `calibrate` measures the parameters of softnic.model.
- `inputs`: the floats that are measured with.
- `stream_endpoints`, `pingpong`, `rank`, `overlap_rank`, `many_connections`: processes that measure and report.

Time, reports and child processes are those of softnic/measure.
"""
