"""DDP and FSDP2 by torch's own compile path: gradients as with `aot_eager`, and each rank inside its budget."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from lowtide.compiling.backend import backend
from lowtide.compiling.loop import loops
from lowtide.device.live import live_bytes
from lowtide.kernels.shards import local
from tests.parallel.two_ranks import on_two

WIDTH, ROWS = 64, 512
CPU = torch.device("cpu")


class Block(nn.Module):
    """Not of nn.Sequential: dynamo compiles no frame of torch's own modules, which is where DDP breaks the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(F.gelu(self.norm(self.linear(x))))
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block() for _ in range(6)]), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


def spread(kind: str, **how: Any) -> tuple[nn.Module, Any]:
    """The model, and what is called: compiled as a user of `kind` does it."""
    torch.manual_seed(0)
    model = Net()
    if kind == "ddp":
        distributed._DEFAULT_FIRST_BUCKET_BYTES = 20_000  # type: ignore[attr-defined]
        return model, torch.compile(DistributedDataParallel(model, bucket_cap_mb=0.02), **how)
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    for block in (*model.blocks, model):
        fully_shard(block, mesh=mesh)
    if kind == "fsdp":
        return model, torch.compile(model, **how)
    for block in model.blocks:
        block.compile(**how)
    return model, model


def train(rank: int, kind: str, **how: Any) -> list[list[Any]]:
    """Loss and gradients of each step, outside of torch's memory."""
    torch._dynamo.reset()
    model, compiled = spread(kind, **how)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = []
    for number in range(5):
        torch.manual_seed(10 * number + rank)
        x, y = torch.randn(ROWS, WIDTH), torch.randint(10, (ROWS,))
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        gradients = [local(p.grad) for p in model.parameters() if p.grad is not None]
        seen.append([t.detach().numpy().copy() for t in (loss, *gradients)])
        optimizer.step()
    return seen


def compared(rank: int, kind: str, room: int, graphs: int) -> str:
    """`equal`, or what is wrong."""
    budget = live_bytes(CPU) + room
    ours = train(rank, kind, backend=backend, options={"budget": budget, "time_limit": 1.0})
    (loop,) = loops.values()
    if len(loop.graphs()) != graphs or loop.unplanned or not any(graph.is_rewritten for graph in loop.graphs()):
        return f"not planned as expected: {loop} {loop.unplanned}"
    if loop.measured_peak is None or loop.measured_peak > budget:
        return f"over the budget: {loop}"
    theirs = train(rank, kind, backend="aot_eager")
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if not all((a == b).all() for a, b in zip(mine, other, strict=True)):
            return f"different at step {number}"
    return "equal"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "room", "graphs"),
    [
        ("ddp", 2_560_000, 4),  # one graph for each bucket
        ("fsdp", 3_072_000, 2),  # the first block's input has no gradient, the other five share a graph
        ("blocks", 3_072_000, 2),
    ],
)
def test_two_ranks_train_as_with_aot_eager(kind: str, room: int, graphs: int, tmp_path: Path) -> None:
    assert on_two(compared, tmp_path, kind, room, graphs) == ["equal", "equal"]
