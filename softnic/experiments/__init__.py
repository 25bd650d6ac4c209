"""Trainings by gradient exchange over real NICs: one trainer, one runner of rank processes, one report.

`softnic demo`, `train`, `compare` and `reproduce` are thin files on these modules, in reading order:

| module | contents |
|---|---|
| `data` | data sets, and the order in which a rank draws batches |
| `timeline` | what a rank did when: `Phase`, `Iteration`, `Timeline`; `Breakdown`, with exposed exchange and skew |
| `numpy_models`, `numpy_replica` | models in numpy (`hdc`, `mlp:LxW`); `NumpyReplica`: model, optimizer, timeline |
| `torch_models`, `torch_replica` | the same in PyTorch (`hdc`, `convnet`, `resnet`, `transformer`); `TorchReplica` |
| `strategies` | how gradients become the next weights: `BulkAllreduce`, `Overlapped`, `Worker`, `Aggregator` |
| `training_ranks` | strategies of numpy models by name (`inc+bounded:10`), over MPI.COMM_WORLD |
| `methods`, `torch_hooks` | methods of PyTorch models by name (`dgc:0.01`, `powersgd:4`), over a communicator |
| `trainer` | the one training loop: draw, forward, backward, exchange, update; evaluation |
| `child_process` | `ChildProcess`: a module run by another process; it reports events as JSON lines |
| `runner` | `RankProcesses`: one `ChildProcess` per node of a cluster, failures as one line; `report_failure` |
| `traffic` | `NicTraffic`: what NICs sent, by their counters |
| `measure` | time, CPU time, memory |
| `report` | `Report` of dataclass rows, `ValueTable` of plain values; tables, JSON, CSV; `MeasurementError` |
| `plot` | `Bars` and `Lines` drawn into one PNG |
| `demo`, `train`, `compare` | plans, rows and columns of the commands; their rank processes |
| `reproduce` | the papers' tables and figures |

Signatures that other modules rely on:

    with RankProcesses(cluster, module, *options, ranks=None, env=None) as ranks:
        ranks.send(line)                                            # to every rank's stdin
        events = ranks.collect(last, on_event, ranks=None, limit_s=600.0)   # each rank's event with the key `last`
    report_json(**values)                                           # in a rank: one event
    report_failure(rank, error)                                     # in a rank: its failure, as the last event
    Report(name, title, columns, rows, settings, notes).show(console); .as_json()
    ValueTable(title, columns, rows, name).draw(); .write(path); .as_json()
    draw_table([(heading, left), ...], rows); write_csv(path, headings, rows)
    plot.draw(title, charts, path)
"""
