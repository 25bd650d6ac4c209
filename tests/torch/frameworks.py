"""Trainings by accelerate, transformers and Lightning over softnic: one rank of test_frameworks.py, under torchrun."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import softnic.torch


def dataset() -> torch.utils.data.TensorDataset:
    draw = torch.Generator().manual_seed(0)
    return torch.utils.data.TensorDataset(torch.randn(64, 10, generator=draw), torch.randn(64, 1, generator=draw))


def same_everywhere(module: Any) -> bool:
    """Return whether all ranks have the same weights."""
    own = torch.cat([each.detach().flatten() for each in module.parameters()])
    everybody = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, own)
    return all(torch.equal(own, other) for other in everybody)


def accelerate(directory: Path) -> dict[str, Any]:
    """Create the process group first; the Accelerator uses it."""
    dist.init_process_group("softnic")
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Linear(10, 1)
    loader = torch.utils.data.DataLoader(dataset(), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    softnic.torch.compress(model, "bounded:10", floor_bytes=0)
    before = torch.cat([each.detach().flatten() for each in model.parameters()])
    for inputs, targets in loader:
        loss = (model(inputs) - targets).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    mean = accelerator.reduce(torch.tensor([float(dist.get_rank())]), "mean")
    gathered = accelerator.gather(torch.tensor([dist.get_rank()])).tolist()
    accelerator.save_state(str(directory))
    accelerator.wait_for_everyone()
    accelerator.load_state(str(directory))
    moved = not torch.equal(before, torch.cat([each.detach().flatten() for each in model.parameters()]))
    results = {
        "trained": moved and same_everywhere(model),
        "mean": mean.tolist() == [(dist.get_world_size() - 1) / 2],
        "gathered": gathered == list(range(dist.get_world_size())),
        "backend": dist.get_backend() == "softnic",
    }
    accelerator.end_training()
    return results


def transformers(directory: Path) -> dict[str, Any]:
    dist.init_process_group("softnic")
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=16, **sizes))
    draw = torch.Generator().manual_seed(0)
    rows = [
        {"input_ids": torch.randint(0, 50, (8,), generator=draw), "labels": torch.tensor(each % 2)}
        for each in range(32)
    ]
    options: dict[str, Any] = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "max_steps": 4}
    arguments = TrainingArguments(str(directory), use_cpu=True, per_device_train_batch_size=2, **options)
    trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
    before = [each.detach().clone() for each in model.parameters()]
    trainer.train()
    moved = any(not torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    return {
        "trained": moved and same_everywhere(model),
        "evaluated": trainer.evaluate()["eval_loss"] > 0,
        "ranks": arguments.world_size == dist.get_world_size(),
        "backend": dist.get_backend() == "softnic",
    }


def lightning(directory: Path) -> dict[str, Any]:
    from lightning import LightningModule, Trainer
    from lightning.pytorch.strategies import DDPStrategy

    class Regression(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(10, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            loss = (self.layer(batch[0]) - batch[1]).square().mean()
            self.log("loss", loss, sync_dist=True)
            self.log("mean", float(self.global_rank), sync_dist=True, on_epoch=True, on_step=False)
            self.log("integers", torch.tensor(self.global_rank), sync_dist=True, on_epoch=True, on_step=False)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    size = int(os.environ["WORLD_SIZE"])
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    strategy = DDPStrategy(process_group_backend="softnic")
    trainer = Trainer(
        accelerator="cpu", devices=size, strategy=strategy, max_epochs=1, default_root_dir=directory, **options
    )
    model = Regression()
    before = model.layer.weight.detach().clone()
    trainer.fit(model, torch.utils.data.DataLoader(dataset(), batch_size=4))
    metrics = trainer.callback_metrics
    reduced = trainer.strategy.reduce(torch.tensor(2 * dist.get_rank() + 1), reduce_op="mean")
    return {
        "trained": not torch.equal(before, model.layer.weight) and same_everywhere(model),
        "mean": float(metrics["mean"]) == (size - 1) / 2,
        "integers": float(metrics["integers"]) == (size - 1) / 2,
        "reduced": int(reduced) == size,
        "backend": dist.get_backend() == "softnic",
    }


def main() -> None:
    torch.set_num_threads(1)
    results = {"accelerate": accelerate, "transformers": transformers, "lightning": lightning}[sys.argv[1]](
        Path(sys.argv[2])
    )
    Path(sys.argv[2], f"results{os.environ['RANK']}.json").write_text(json.dumps(results))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
