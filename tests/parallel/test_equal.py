"""Two ranks train bit for bit as DDP and FSDP2 do by themselves, with and without a budget."""

from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import lowtide
from lowtide.kernels.shards import local
from tests.parallel.two_ranks import POLICIES, ROWS, batches, loss, model_of, on_two


def compared(
    rank: int,
    kind: str,
    budget: str | None = None,
    accumulate: int = 1,
    clip: float | None = None,
    rows: Sequence[int] = (ROWS, ROWS),
    flush_after: int | None = None,
    **options: Any,
) -> str:
    """Train twice side by side; the first difference, or nothing. `rows` has the size of each step's batch."""
    theirs, their_optimizer = model_of("ddp" if kind in ("plain", "mesh") else kind)
    ours, optimizer = model_of(kind)
    if kind == "plain":
        options["process_group"] = distributed.group.WORLD
    elif kind == "mesh":
        options["mesh"] = init_device_mesh("cpu", (distributed.get_world_size(),))
    data = [batch for count in rows for batch in batches(rank, accumulate, count)][:flush_after]
    step = lowtide.train_step(
        ours, optimizer, data[0], loss, budget, "optimal", clip, accumulate, progress=False, **options
    )
    for number, batch in enumerate(data):
        torch.manual_seed(number)
        mine = step(batch)
        torch.manual_seed(number)
        last = number % accumulate == accumulate - 1 or number + 1 == flush_after
        apart = isinstance(theirs, DistributedDataParallel) and not last
        with theirs.no_sync() if apart else nullcontext():  # type: ignore[operator]
            value = loss(theirs, batch)
            value.backward()
        if last:
            if flush_after is not None:
                step.flush()
            norm = None if clip is None else torch.nn.utils.clip_grad_norm_(theirs.parameters(), clip)
            if norm is not None and not torch.equal(_whole(norm), _whole(step.grad_norm)):
                return f"the norm at step {number}"
            their_optimizer.step()
            their_optimizer.zero_grad()
        if not torch.equal(mine, value.detach()):
            return f"the loss at step {number}"
        different = first_difference(ours, optimizer, theirs, their_optimizer)
        if different:
            return f"{different} at step {number}"
        if step.plan is not None and (step.measured_peak or 0) > step.plan.budget:
            return f"over the budget at step {number}: {step.measured_peak} of {step.plan.budget}"
    again = sum(op.purpose == "recompute" and op.op == "lowtide.gather.default" for op in step.graph.ops)
    return f"equal, {again} gathered again, {len(step.graph.ops)} ops, wanted {step.plan and step.plan.rewritten}"


def _whole(norm: Any) -> torch.Tensor:
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # type: ignore[no-any-return]


def first_difference(ours: Any, optimizer: Any, theirs: Any, their_optimizer: Any) -> str:
    """Of parameters or shards, optimizer state and buffers."""
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


def each(rank: int, *kinds: str) -> str:
    """One after the other."""
    return " ".join(compared(rank, kind, None, 1, None).split(",")[0] for kind in kinds)


def test_two_ranks_train_as_torch_does(tmp_path: Path) -> None:
    assert on_two(each, tmp_path, "ddp", "fsdp") == ["equal equal", "equal equal"]


@pytest.mark.slow
def test_every_mixed_precision_policy(tmp_path: Path) -> None:
    policies = [kind for kind in POLICIES if kind not in ("fsdp", "hsdp")]
    assert on_two(each, tmp_path, *policies) == [" ".join("equal" for _ in policies)] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "budget", "accumulate", "clip"),
    [
        ("ddp", "75%", 1, None),
        ("fsdp", "65%", 1, None),
        ("ddp", "90%", 3, 0.5),
        ("fsdp", "75%", 2, 0.5),
        ("bf16, summed in fp32", "85%", 2, 0.5),
        ("plain", None, 2, None),
    ],
)
def test_within_a_budget(kind: str, budget: str | None, accumulate: int, clip: float | None, tmp_path: Path) -> None:
    said = on_two(compared, tmp_path, kind, budget, accumulate, clip)
    assert [text.split(",")[0] for text in said] == ["equal", "equal"], said
    if budget is not None and accumulate == 1:
        assert all(text.endswith("True") for text in said), said


def on_four(rank: int) -> str:
    """FSDP2, HSDP, and DDP from its second step on. DDP fills the buckets of its first step in another order: so what
    follows is how far it and ours are apart after five steps, and two of its own bucket sizes."""
    found = [compared(rank, "fsdp"), compared(rank, "hsdp", "85%", 2, 0.5)]
    data = batches(rank, 5)
    usual, small, theirs = _Ddp(25), _Ddp(0.004), _Ddp(25)
    ours, optimizer = model_of("ddp")
    step = lowtide.train_step(ours, optimizer, data[0], loss)
    for number, batch in enumerate(data):
        torch.manual_seed(number)
        step(batch)
        for ddp in (usual, small, theirs):
            ddp.step(number, batch)
        if number == 0:
            theirs.model.load_state_dict(ours.state_dict())
            theirs.optimizer.load_state_dict(deepcopy(optimizer.state_dict()))
    found.append(first_difference(ours, optimizer, theirs.model, theirs.optimizer) or "equal")
    apart = [_distance(model, usual.model) for model in (ours, small.model)]
    return " ".join([*(text.split(",")[0] for text in found), *map(str, apart)])


class _Ddp:
    """DDP's own training."""

    def __init__(self, bucket_cap_mb: float) -> None:
        self.model = DistributedDataParallel(model_of("plain")[0], bucket_cap_mb=bucket_cap_mb)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2)

    def step(self, number: int, batch: Any) -> None:
        torch.manual_seed(number)
        loss(self.model, batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@torch.no_grad()
def _distance(model: torch.nn.Module, other: torch.nn.Module) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.slow
def test_four_ranks(tmp_path: Path) -> None:
    said = [text.split(" ") for text in on_two(on_four, tmp_path, world=4)]
    assert all(words[:3] == ["equal", "equal", "equal"] for words in said), said
    # DDP sums its first step in another order, as it does with other bucket sizes: in both a few last bits of numbers
    # around 1 differ after five steps. docs/distributed.md has what was measured.
    assert all(float(words[3]) < 1e-5 and float(words[4]) < 1e-5 for words in said), said
