"""BERT-Base itself on two ranks, within a budget, bit for bit as under DDP and FSDP2.

Both trainings at once would take twice the memory: the bytes of the first are remembered by their digests, which is
stricter than `torch.equal`.
"""

from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

import lowtide
from lowtide.experiments.rank_training import find_way, spread_out, with_own_batch
from lowtide.kernels.shards import local
from lowtide.models import ModelOptions, build
from tests.parallel.two_ranks import on_two

STEPS = 3
BUDGETS = {"ddp": "90%", "fsdp": "90%"}
"""A copy of the model and its optimizer state take most of what a small batch takes."""


def state(model: nn.Module, optimizer: Optimizer) -> dict[str, str]:
    """The digests of parameters or shards, buffers and optimizer state."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    parameters = dict(model.named_parameters())
    held: dict[str, Tensor] = {**parameters, **dict(model.named_buffers())}
    held |= {f"{key} of {name}": x for name, p in parameters.items() for key, x in optimizer.state[p].items()}
    flat = {name: local(x).detach().contiguous().reshape(-1).view(torch.uint8) for name, x in held.items()}
    return {name: blake2b(x.numpy().tobytes(), digest_size=16).hexdigest() for name, x in flat.items()}


def trained(rank: int, way: str, budget: str | None) -> tuple[list[Any], dict[str, str], str]:
    """Losses, the state behind the last step, and what a plan did."""
    options = ModelOptions(seq_len=32)
    training = with_own_batch(lambda seed: build("bert-base", 2, options, seed=seed), 0, rank)
    model = spread_out(training.model, find_way(way))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    step = None
    if budget is not None:
        step = lowtide.train_step(model, optimizer, training.batch, training.loss, budget, progress=False)
    losses, peaks, said = [], [], ""
    for number in range(STEPS):
        torch.manual_seed(number)
        if step is not None:
            losses.append(step(training.batch).clone())
            peaks.append(step.measured_peak or 0)
            continue
        loss = model(**training.batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    if step is not None and step.plan is not None:
        said = f"rewritten {step.plan.rewritten}, within {max(peaks) <= step.plan.budget}"
    return losses, state(model, optimizer), said


def compared(rank: int, way: str) -> str:
    """What differs, and what the plan did."""
    losses, theirs, _ = trained(rank, way, None)
    mine, ours, said = trained(rank, way, BUDGETS[way])
    different = [f"the loss at step {k}" for k in range(STEPS) if not torch.equal(losses[k], mine[k])]
    different += [name for name in theirs if theirs[name] != ours.get(name)]
    return f"{'; '.join(different[:5]) or 'equal'}, {said}"


@pytest.mark.slow
@pytest.mark.parametrize("way", BUDGETS)
def test_bert_base(way: str, tmp_path: Path) -> None:
    assert on_two(compared, tmp_path, way) == ["equal, rewritten True, within True"] * 2
