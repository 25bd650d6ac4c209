"""What softnic.torchft does in torchft's place."""

from __future__ import annotations

from typing import Any

from tests import needs

torch: Any = needs.module("torch")
needs.module("torchft")

from softnic.torchft import DistributedDataParallel

WIDTH, LAYERS = 64, 4


class Work:
    def __init__(self, events: list[str], number: int) -> None:
        self._events, self._number = events, number

    def wait(self) -> bool:
        self._events.append(f"waited {self._number}")
        return True


class Manager:
    """Doubles what it is to sum."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def allreduce(self, tensor: Any) -> Work:
        number = len([event for event in self.events if event.startswith("began")])
        self.events.append(f"began {number}")
        tensor *= 2
        return Work(self.events, number)


def test_buckets_are_summed_while_gradients_are_computed() -> None:
    """All sums of a step have begun before one is waited for."""
    manager = Manager()
    alone = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    inputs = torch.randn(3, WIDTH)
    alone(inputs).sum().backward()
    expected = [2 * each.grad for each in alone.parameters()]
    model = DistributedDataParallel(manager, alone, bucket_cap_mb=WIDTH * WIDTH * 4 / 1e6)
    for _ in range(2):
        manager.events.clear()
        model.zero_grad()
        model(inputs).sum().backward()
        buckets = len(manager.events) // 2
        assert buckets > 1
        assert manager.events == [f"{what} {number}" for what in ("began", "waited") for number in range(buckets)]
        for each, gradient in zip(alone.parameters(), expected, strict=True):
            torch.testing.assert_close(each.grad, gradient)
