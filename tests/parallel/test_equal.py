"""Two ranks train bit for bit as DDP and FSDP2 do by themselves, with and without a budget."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import lowtide
from lowtide.kernels.shards import local
from tests.parallel.two_ranks import batches, loss, model_of, on_two


def compared(rank: int, kind: str, budget: str | None, accumulate: int, clip: float | None) -> str:
    """Train twice side by side; the first difference, or nothing."""
    theirs, their_optimizer = model_of("ddp" if kind == "plain" else kind)
    ours, optimizer = model_of(kind)
    group = distributed.group.WORLD if kind == "plain" else None
    data = batches(rank, 2)
    step = lowtide.train_step(
        ours, optimizer, data[0], loss, budget, "optimal", clip, accumulate, process_group=group, progress=False
    )
    for number, batch in enumerate(data * accumulate):
        torch.manual_seed(number)
        mine = step(batch)
        torch.manual_seed(number)
        last = number % accumulate == accumulate - 1
        apart = isinstance(theirs, DistributedDataParallel) and not last
        with theirs.no_sync() if apart else nullcontext():  # type: ignore[operator]
            value = loss(theirs, batch)
            value.backward()
        if last:
            norm = None if clip is None else torch.nn.utils.clip_grad_norm_(theirs.parameters(), clip)
            if norm is not None and not torch.equal(_whole(norm), _whole(step.grad_norm)):
                return f"the norm at step {number}"
            their_optimizer.step()
            their_optimizer.zero_grad()
        if not torch.equal(mine, value.detach()):
            return f"the loss at step {number}"
        different = _first_difference(ours, optimizer, theirs, their_optimizer)
        if different:
            return f"{different} at step {number}"
        if step.plan is not None and (step.measured_peak or 0) > step.plan.budget:
            return f"over the budget at step {number}: {step.measured_peak} of {step.plan.budget}"
    again = sum(op.purpose == "recompute" and op.op == "lowtide.gather.default" for op in step.graph.ops)
    return f"equal, {again} gathered again, {len(step.graph.ops)} ops, wanted {step.plan and step.plan.rewritten}"


def _whole(norm: Any) -> torch.Tensor:
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # type: ignore[no-any-return]


def _first_difference(ours: Any, optimizer: Any, theirs: Any, their_optimizer: Any) -> str:
    for module in theirs.modules():
        if hasattr(module, "reshard"):
            module.reshard()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if not torch.equal(local(mine), local(other)):
            return str(name)
        states = (optimizer.state[mine].values(), their_optimizer.state[other].values())
        if not all(torch.equal(local(a), local(b)) for a, b in zip(*states, strict=True)):
            return f"state of {name}"
    for (name, mine), other in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        if not torch.equal(mine, other):
            return str(name)
    return ""


def both(rank: int) -> str:
    """DDP, then FSDP2."""
    return " ".join(compared(rank, kind, None, 1, None).split(",")[0] for kind in ("ddp", "fsdp"))


def test_two_ranks_train_as_torch_does(tmp_path: Path) -> None:
    assert on_two(both, tmp_path) == ["equal equal", "equal equal"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "budget", "accumulate", "clip"),
    [
        ("ddp", "75%", 1, None),
        ("fsdp", "65%", 1, None),
        ("ddp", "90%", 3, 0.5),
        ("fsdp", "75%", 2, 0.5),
        ("plain", None, 2, None),
    ],
)
def test_within_a_budget(kind: str, budget: str | None, accumulate: int, clip: float | None, tmp_path: Path) -> None:
    said = on_two(compared, tmp_path, kind, budget, accumulate, clip)
    assert [text.split(",")[0] for text in said] == ["equal", "equal"], said
    if budget is not None and accumulate == 1:
        assert all(text.endswith("True") for text in said), said
