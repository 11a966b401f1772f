"""A model of timm's in your own loop, inside a budget. Not run in lowtide's tests: timm needs torchvision."""

import sys

import timm
import torch
from torch import nn


def train(budget: int | str | None, steps: int = 6) -> list[float]:
    """The losses; without a budget nothing is compiled."""
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", pretrained=False, num_classes=10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if budget is not None:
        model = torch.compile(model, backend="lowtide", options={"budget": budget})
    losses = []
    for _ in range(steps):
        inputs, labels = torch.randn(8, 3, 64, 64), torch.randint(10, (8,))
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    sys.stdout.write(f"losses {train('300MiB')}\n")
