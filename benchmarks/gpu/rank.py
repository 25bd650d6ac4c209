"""One rank of benchmarks.gpu: `python -m benchmarks.gpu.rank`, over softnic, Gloo or NCCL.

Each line on its stdin is an order; a WAY is `exact`, a codec, or `fp16`, torch's hook, and `auto`, compress(model):

    all_reduce WAY BYTES CALLS      of a tensor, times of all calls
    ddp WAY STEPS                   of a transformer of 29.4 million parameters, 8 x 128 tokens
    fsdp2 WAY STEPS                 the same, sharded, in bfloat16, its weights by exact:16 unless WAY is exact
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from softnic.measure.child_process import report_json
from softnic.measure.timing import own_cpu_s

VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS, BATCH = 8192, 128, 512, 8, 8, 8
ON_CPU = (256, 64, 2)
"""Vocabulary, width and layers of the model on tensors of the host."""
WARM_UP = 4
"""Steps: buckets are made anew after the first, kernels are compiled, memory is set up."""
SEED = 7


class Transformer(torch.nn.Module):
    """The logits of the token after each one of a text."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.places = torch.nn.Parameter(torch.zeros(CONTEXT, width))
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, HEADS, 4 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.tokens(text) + self.places.to(self.tokens.weight.dtype)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(CONTEXT, device=x.device, dtype=x.dtype)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        logits = self.norm(x) @ self.tokens.weight.t()
        scaled: torch.Tensor = logits / x.shape[-1] ** 0.5
        return scaled


class Rank:
    """A rank's device and process group."""

    def __init__(self, given: argparse.Namespace) -> None:
        torch.set_num_threads(1)
        self.backend: str = given.backend
        self.device = torch.device(given.device)
        if self.device.type == "cuda":
            self.device = torch.device("cuda", given.rank % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        self.shape = ON_CPU if self.device.type == "cpu" else (VOCABULARY, WIDTH, LAYERS)
        self._softnic: Any = importlib.import_module("softnic.torch") if self.backend == "softnic" else None
        dist.init_process_group(self.backend, init_method=given.master, rank=given.rank, world_size=given.size)
        torch.manual_seed(SEED)

    def all_reduce(self, way: str, size: int, calls: int) -> None:
        if self._softnic is not None:
            self._softnic.compress(None, None if way == "exact" else way)
        tensor = torch.randn(size // 4, device=self.device) * 1e-3
        given, seconds = tensor.clone(), []
        for _ in range(2):
            dist.all_reduce(tensor.copy_(given))
        cpu = 0.0
        for _ in range(calls):
            tensor.copy_(given)
            dist.barrier()
            self._synchronize()
            began, own = time.perf_counter(), own_cpu_s()
            dist.all_reduce(tensor)
            self._synchronize()
            seconds.append(time.perf_counter() - began)
            cpu += own_cpu_s() - own
        report_json(seconds=seconds, cpu_s=cpu / calls)

    def ddp(self, way: str, steps: int) -> None:
        model: Any = DistributedDataParallel(self._network(), gradient_as_bucket_view=True)
        if way == "fp16":
            hooks: Any = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
            model.register_comm_hook(None, hooks.fp16_compress_hook)
        elif way == "auto":
            self._softnic.compress(model)
        elif self._softnic is not None:
            self._softnic.compress(None, None if way == "exact" else way)
        self._train(model, steps, WARM_UP if way != "auto" else 20)

    def fsdp2(self, way: str, steps: int) -> None:
        fsdp: Any = importlib.import_module("torch.distributed.fsdp")
        model: Any = self._network()
        policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        for layer in model.layers:
            fsdp.fully_shard(layer, mp_policy=policy)
        fsdp.fully_shard(model, mp_policy=policy)
        if way != "exact":
            self._softnic.compress(model, gradients=way, weights="exact:16")
        self._train(model, steps, WARM_UP)

    def _network(self) -> Transformer:
        torch.manual_seed(SEED)
        return Transformer(*self.shape).to(self.device)

    def _train(self, model: Any, steps: int, warm_up: int) -> None:
        """Report the time of a step and the loss, after some steps that do not count."""
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), []
        generator = torch.Generator(device=self.device).manual_seed(SEED + dist.get_rank())
        began = own = 0.0
        for step in range(warm_up + steps):
            if step == warm_up:
                dist.barrier()
                self._synchronize()
                began, own = time.perf_counter(), own_cpu_s()
            # A token is that before it, and a little more: something to learn.
            jumps = torch.randint(1, 4, (BATCH, CONTEXT + 1), generator=generator, device=self.device)
            text = jumps.cumsum(1) % self.shape[0]
            logits = model(text[:, :-1]).float()
            loss: Any = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        self._synchronize()
        dist.barrier()
        seconds, cpu = time.perf_counter() - began, own_cpu_s() - own
        last = torch.stack(losses[-max(1, steps // 10) :]).mean()
        report_json(step_s=seconds / steps, cpu_s=cpu / steps, loss=float(last))

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--backend", choices=["softnic", "gloo", "nccl"], required=True)
    options.add_argument("--device", choices=["cuda", "cpu"], required=True)
    options.add_argument("--master", required=True, help="where ranks meet: tcp://HOST:PORT")
    options.add_argument("--rank", type=int, required=True)
    options.add_argument("--size", type=int, required=True)
    rank = Rank(options.parse_args())
    report_json(ready=True)
    for order in sys.stdin:
        what, way, *numbers = order.split()
        getattr(rank, what)(way, *map(int, numbers))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
