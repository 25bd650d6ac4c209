"""Trainings by gradient exchange over real NICs: one training loop, one runner of rank processes.

`softnic demo`, `train` and `compare` are thin files on these modules, in reading order:

| module | contents |
|---|---|
| `data` | data sets, and the order in which a rank draws batches |
| `photos` | a data set of patches cut out of photographs that packages ship |
| `timeline` | what a rank did when: `Phase`, `Iteration`, `Timeline`; `Breakdown`, with exposed exchange and skew |
| `replica` | `Replica`: a model over flat vectors, with optimizer and timeline |
| `numpy_models`, `numpy_replica` | models in numpy (`hdc`, `mlp:LxW`) |
| `torch_models`, `torch_replica` | models in PyTorch (`hdc`, `convnet`, `resnet`, `transformer`) |
| `strategies` | how gradients become the next weights: `BulkAllreduce`, `Overlapped`, `Worker`, `Aggregator` |
| `training_ranks` | strategies of numpy models by name (`inc+bounded:10`), over MPI.COMM_WORLD |
| `methods`, `torch_hooks` | methods of PyTorch models by name (`dgc:0.01`, `powersgd:4`), over a communicator |
| `trainer` | `TrainingLoop`: draw, forward, backward, exchange, update; `train` for models in numpy |
| `runner` | `RankPool`: one `ChildProcess` per node of a cluster, failures as one line |
| `traffic` | `NicTraffic`: what NICs sent, by their counters |
| `demo`, `train`, `compare` | plans, rows and columns of the commands; their rank processes |
"""
