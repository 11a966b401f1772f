"""Your own loop, optimizer and data; forward and backward inside a budget by torch.compile."""

import sys

import torch
from torch import nn


def train(how: str | None, budget: str = "6MiB", steps: int = 6) -> list[float]:
    """The losses, with the backend called `how`."""
    torch.manual_seed(0)
    sizes = [(3, 16), (16, 16), (16, 16), (16, 16)]
    blocks = [nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()) for i, o in sizes]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    compiled = torch.compile(model, backend=how, options={"budget": budget} if how == "lowtide" else None)
    losses = []
    for _ in range(steps):
        inputs, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
        optimizer.zero_grad()
        loss = loss_of(compiled(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    sys.stdout.write(f"losses {train('lowtide')}\n")
