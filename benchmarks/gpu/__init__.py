"""Training on GPUs over softnic: copies and kernels, all-reduce, DDP and FSDP2 steps, beside Gloo and NCCL."""
