"""Accelerate: `LowtidePlugin` in place of its TorchDynamoPlugin; gradients of two batches accumulate."""

import sys

import torch
from accelerate import Accelerator
from torch import nn

from lowtide import LowtidePlugin


def train(budget: int | str | None, steps: int = 6) -> list[float]:
    """The losses; without a budget nothing is compiled."""
    torch.manual_seed(0)
    sizes = [(3, 16), (16, 16), (16, 16), (16, 16)]
    blocks = [nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()) for i, o in sizes]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    plugin = None if budget is None else LowtidePlugin(budget=budget)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, dynamo_plugin=plugin)
    model, optimizer = accelerator.prepare(model, optimizer)
    loss_of = nn.CrossEntropyLoss()
    losses = []
    for _ in range(steps):
        inputs, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
        with accelerator.accumulate(model):
            loss = loss_of(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    sys.stdout.write(f"losses {train('6MiB')}\n")
