"""Your own `torch.utils.checkpoint` regions: a graph that has them runs as you wrote it, which the log says once."""

import logging
import sys

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """A chain whose second half is recomputed because its author said so."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.GELU()) for _ in range(3)))
        self.second = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.GELU()) for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        """Mean of squares."""
        out: Tensor = checkpoint(self.second, self.first(x), use_reentrant=False)
        return out.square().mean()


def train(budget: int | str | None, steps: int = 4) -> list[float]:
    """The losses; without a budget nothing is compiled."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if budget is not None:
        model = torch.compile(model, backend="lowtide", options={"budget": budget})
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(512, 128))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.stdout.write(f"losses {train('6MiB')}\n")
