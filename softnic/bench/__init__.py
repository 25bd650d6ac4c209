"""How fast it is here: what `softnic bench` measures, each time beside a limit that was measured in the same run.

Machines differ and neighbours disturb, so figures are medians over rounds, every round measures the limit too, and the
shares of it, not the absolute figures, are what to compare between machines.

- `measure`: time, CPU time, memory; `report`: the one way of tabulating and of writing JSON; `inputs`: the floats.
- `codec` with `compressors`, `stream` with `flood`, `allreduce`, `latency`, `connections`: one module a benchmark, with
  its limit.
- `programs`: child processes that tell what they measured; `ends`, `flood`, `pingpong`, `rank`, `crowd` are such.
"""
