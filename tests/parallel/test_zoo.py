"""Transformers and convnets of the zoo on two ranks, bit for bit as under DDP and FSDP2."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import lowtide
from lowtide.tracing.loss import Loss, loss_and_rest, model_loss
from tests.parallel.test_equal import first_difference
from tests.parallel.two_ranks import on_two
from tests.zoo import ZOO

pytestmark = pytest.mark.slow

BOTH = ("convnet", "bert", "distilbert", "gpt2", "llama", "vit", "resnet", "t5")
MODELS = {"fsdp": BOTH, "ddp": (*BOTH, "convnet_channels_last")}
"""fully_shard itself refuses parameters in channels-last."""


def spread(model: nn.Module, kind: str) -> nn.Module:
    """Under DDP, or with `fully_shard` around every block and the rest."""
    if kind == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    paths = [path for path, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    for path in paths:
        if not any(path.startswith(f"{other}.") for other in paths):
            for block in model.get_submodule(path).children():
                fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def side_by_side(ours: nn.Module, theirs: nn.Module, data: Sequence[Any], loss: Loss | None) -> str:
    """The first difference of two trainings, or nothing."""
    optimizer, their_optimizer = (torch.optim.AdamW(model.parameters(), 1e-3) for model in (ours, theirs))
    step = lowtide.train_step(ours, optimizer, data[0], loss, progress=False)
    for number, batch in enumerate(data):
        torch.manual_seed(number)
        mine, _ = loss_and_rest(step(batch))
        torch.manual_seed(number)
        value, _ = loss_and_rest((loss or model_loss)(theirs, batch))
        value.backward()
        their_optimizer.step()
        their_optimizer.zero_grad()
        if not torch.equal(mine, value.detach()):
            return f"the loss at step {number}"
        different = first_difference(ours, optimizer, theirs, their_optimizer)
        if different:
            return f"{different} at step {number}"
    return ""


def zoo(rank: int, kind: str) -> str:
    """Whatever is not equal, by model."""
    said = []
    for name in MODELS[kind]:
        pair = []
        for _ in "12":
            torch.manual_seed(0)
            case = ZOO[name]()
            pair.append(spread(case.model, kind))
        data = [case.batch, case.other, case.batch] if rank == 0 else [case.other, case.batch, case.other]
        said.append((name, side_by_side(pair[0], pair[1], data, case.loss)))
    return "; ".join(f"{name}: {text}" for name, text in said if text)


@pytest.mark.parametrize("kind", MODELS)
def test_models_of_the_zoo(kind: str, tmp_path: Path) -> None:
    assert on_two(zoo, tmp_path, kind) == ["", ""]
