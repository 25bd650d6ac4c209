"""PyTorch's DistributedDataParallel over softnic and over Gloo, on the same shaped links, in the same run.

`python -m benchmarks.ddp`, from the root of the checkout, as root. See __main__.
"""
