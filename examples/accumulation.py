"""Gradients of three batches accumulate, are clipped, and move the parameters: your own loop, inside a budget."""

import sys

import torch
from torch import nn


def train(budget: int | str | None, steps: int = 9) -> list[float]:
    """The losses; without a budget nothing is compiled."""
    torch.manual_seed(0)
    sizes = [(3, 16), (16, 16), (16, 16), (16, 16)]
    blocks = [nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()) for i, o in sizes]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if budget is not None:
        model = torch.compile(model, backend="lowtide", options={"budget": budget})
    losses = []
    for k in range(steps):
        inputs, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
        loss = nn.functional.cross_entropy(model(inputs), labels) / 3
        loss.backward()
        if k % 3 == 2:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    sys.stdout.write(f"losses {train('6MiB')}\n")
