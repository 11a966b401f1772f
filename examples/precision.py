"""Autocast in bfloat16, or in float16 with a GradScaler: your own loop, inside a budget."""

import sys

import torch
from torch import nn


def train(how: str, budget: int | str = "12MiB", dtype: torch.dtype = torch.bfloat16, steps: int = 6) -> list[float]:
    """The losses, with the backend called `how`."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256)) for _ in range(4)]
    model = nn.Sequential(*blocks, nn.Dropout(0.1), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, enabled=dtype is torch.float16)
    compiled = torch.compile(model, backend=how, options={"budget": budget} if how == "lowtide" else None)
    losses = []
    for _ in range(steps):
        inputs, labels = torch.randn(1024, 256), torch.randint(10, (1024,))
        with torch.autocast("cpu", dtype=dtype):
            loss = nn.functional.cross_entropy(compiled(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    sys.stdout.write(f"losses {train('lowtide')}\n")
