"""A process of benchmarks/heal.py: a member that serves a trained state, or one that joins and takes its first step.

A source prints its metadata, then, for each line of its input, the CPU seconds that it has used. A joiner prints, as
JSON, what it measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import sys
import time
from datetime import timedelta
from typing import Any

import torch
from torch import nn

HTTP, SOFTNIC, EXACT = "torchft HTTP", "softnic", "softnic, exact:32"
STEP = 40
_LIMIT = timedelta(seconds=120)
_WIDTH, _LAYERS, _CONTEXT = 256, 10, 64


class Characters(nn.Module):
    """A transformer of 8.1 million parameters that predicts the next byte: 98 MB with the state of Adam."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, _WIDTH)
        layer = nn.TransformerEncoderLayer(_WIDTH, 4, 4 * _WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(_WIDTH, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next bytes."""
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1])
        logits: torch.Tensor = self.head(self.layers(self.embedding(text), mask=mask, is_causal=True))
        return logits


def made() -> tuple[Characters, torch.optim.Adam]:
    """Return a model and its optimizer."""
    torch.manual_seed(7)
    model = Characters()
    return model, torch.optim.Adam(model.parameters(), lr=3e-4)


def step(model: Characters, optimizer: torch.optim.Adam, text: torch.Tensor, rows: int) -> None:
    """Take one step of training."""
    starts = torch.randint(0, len(text) - _CONTEXT - 1, (rows,))
    windows = torch.stack([text[start : start + _CONTEXT + 1] for start in starts.tolist()])
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def transport_of(name: str) -> Any:
    """Return a transport of torchft."""
    torchft = importlib.import_module("torchft.checkpointing.http_transport")  # by both, as their jobs do
    if name == HTTP:
        return torchft.HTTPTransport(_LIMIT, 0)
    from softnic.torch.checkpoint import SoftnicTransport

    return SoftnicTransport(_LIMIT, compress=name == EXACT, report=lambda _: None)


def serve(given: argparse.Namespace) -> None:
    """Serve the state in a file until the input ends."""
    state = torch.load(given.state)
    transport = transport_of(given.transport)
    transport.send_checkpoint([1], STEP, state, _LIMIT)
    print(transport.metadata(), flush=True)
    for _ in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_utime + used.ru_stime, flush=True)
    transport.disallow_checkpoint()


def join(given: argparse.Namespace) -> None:
    """Receive the state, load it and take a step."""
    model, optimizer = made()
    transport = transport_of(given.transport)
    if given.transport != HTTP:
        others = [tuple(json.loads(each)["softnic"]) for each in given.metadata[1:]]
        transport.join_members(lambda: others, lambda: (0, dict))
    began = time.perf_counter()
    state = transport.recv_checkpoint(0, given.metadata[0], STEP, _LIMIT)
    received_s = time.perf_counter() - began
    same = is_same(state, torch.load(given.state))
    checked_s = time.perf_counter() - began - received_s
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step(model, optimizer, state["text"].long(), 1)
    stepped_at = time.time() - checked_s
    print(json.dumps({"received_s": received_s, "stepped_at": stepped_at, "same": same}), flush=True)


def is_same(state: Any, expected: Any) -> bool:
    """Return whether two states have the same bits."""
    own, other = state["optimizer"]["state"], expected["optimizer"]["state"]
    pairs = [(state["model"][name], value) for name, value in expected["model"].items()]
    pairs += [(own[number][key], value) for number, each in other.items() for key, value in each.items()]
    return all(one.numpy().tobytes() == two.numpy().tobytes() for one, two in pairs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("serve", "join"))
    parser.add_argument("transport", choices=(HTTP, SOFTNIC, EXACT))
    parser.add_argument("state")
    parser.add_argument("metadata", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    serve(arguments) if arguments.role == "serve" else join(arguments)
