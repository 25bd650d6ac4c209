"""Fully sharded training (FSDP2), compressed both ways: a small transformer learns to continue a text.

    torchrun --nproc-per-node 4 fsdp2.py
    softnic run -n 4 --rate 100mbit -- python fsdp2.py

Of each weight every rank holds a part, and gathers a layer when it needs it: in bfloat16, and encoded without loss. The
gradients are summed in four bits a value. `--gradients none --weights none` sends both as they are.
"""

import argparse
import time
from pydoc_data.topics import topics  # a text that every Python has: its language reference

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

import softnic.torch

CHARACTERS, CONTEXT, WIDTH, LAYERS = 128, 64, 256, 4


class Transformer(torch.nn.Module):
    """The logits of the character after each one of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = torch.nn.Embedding(CHARACTERS, WIDTH)
        self.places = torch.nn.Embedding(CONTEXT, WIDTH)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.next = torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, CHARACTERS))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.characters(text) + self.places(torch.arange(text.shape[1]))
        mask = torch.nn.Transformer.generate_square_subsequent_mask(text.shape[1], dtype=x.dtype)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        logits: torch.Tensor = self.next(x)
        return logits


def batches(rank: int, size: int, seed: int) -> torch.utils.data.DataLoader:
    """Random windows of the text, others on each rank."""
    text = torch.frombuffer(
        bytearray("\n".join(topics[key] for key in sorted(topics)).encode("ascii", "replace")), dtype=torch.uint8
    )
    windows = text.long().unfold(0, CONTEXT + 1, CONTEXT)[rank :: dist.get_world_size()]
    order = torch.Generator().manual_seed(seed)
    return torch.utils.data.DataLoader(windows, batch_size=size, shuffle=True, drop_last=True, generator=order)


def codec(text: str) -> str | None:
    return None if text == "none" else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4, help="windows of 64 characters per rank and step (4)")
    parser.add_argument("--gradients", type=codec, default="rht:4", help="codec of their sums, or none (rht:4)")
    parser.add_argument("--weights", type=codec, default="exact:16", help="codec of their copies, or none (exact:16)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    torch.set_num_threads(1)  # ranks share the cores of this machine
    dist.init_process_group("softnic")
    rank = dist.get_rank()

    torch.manual_seed(given.seed)
    model = Transformer()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    softnic.torch.compress(model, gradients=given.gradients, weights=given.weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    step, total, begun = 0, 0.0, time.monotonic()
    while step < given.steps:
        for text in batches(rank, given.batch, given.seed + step):
            loss = cross_entropy(model(text[:, :-1]).float().flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, total = step + 1, total + loss.item()
            if rank == 0 and step % 20 == 0:
                print(f"step {step}: loss {total / 20:.4f}", flush=True)
                total = 0.0
            if step == given.steps:
                break
    if rank == 0:
        held = sum(p.to_local().numel() for p in model.parameters())
        whole = sum(p.numel() for p in model.parameters())
        took = (time.monotonic() - begun) / given.steps
        print(f"{1000 * took:.0f} ms a step; this rank holds {held:,} of {whole:,} weights", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
