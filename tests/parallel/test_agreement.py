"""Ranks agree on one graph and one plan; who differs, fails or dies is named by the others."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.optim import Optimizer

import lowtide
from lowtide.errors import InputError, LowtideError
from lowtide.parallel.spread import spread_of
from tests.parallel.two_ranks import batches, loss, model_of, on_two


def different(rank: int, what: str) -> str:
    """One rank differs, or goes away."""
    model, optimizer = model_of("plain")
    rows = 32 if what == "batch" and rank == 1 else 64
    if what == "model" and rank == 1:
        model[1][1] = nn.ReLU()  # type: ignore[index]
    budget = 90_000 if what == "budget" else None
    data = batches(rank, 3, rows)
    step = lowtide.train_step(model, optimizer, data[0], loss, budget, process_group=distributed.group.WORLD)
    step(data[0])
    if what == "killed" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "failing" and rank == 1:
        data[1] = (torch.full_like(data[1][0], 1.0), torch.full_like(data[1][1], 99))
    return str(step(data[1]))


@pytest.mark.slow
def test_another_model_is_named_with_its_op(tmp_path: Path) -> None:
    said = on_two(different, tmp_path, "model")
    assert said[0] == said[1]
    assert "rank 1 has another step than rank 0" in said[0], said
    assert "relu" in said[0]
    assert "gelu" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("batch", ("rank 1 has another batch than rank 0", "rank 1 has another batch than rank 0")),
        ("budget", ("BudgetUnreachable: ", "BudgetInfeasible: ")),
        ("killed", ("RankFailed: rank 1 is gone in a step", "")),
        ("failing", ("RankFailed: rank 1 failed in a step", "")),
    ],
)
def test_everybody_ends_and_says_why(what: str, expected: tuple[str, str], tmp_path: Path) -> None:
    said = on_two(different, tmp_path, what)
    assert expected[0] in said[0], said
    assert expected[1] in said[1], said


def killed_of_four(rank: int) -> str:
    """Rank 2 goes; rank 0 is not its neighbour, and waits for others."""
    model, optimizer = model_of("plain")
    data = batches(rank, 1)[0]
    step = lowtide.train_step(model, optimizer, data, loss, process_group=distributed.group.WORLD)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return str(step(data))


@pytest.mark.slow
def test_the_one_that_is_gone_is_named_by_all(tmp_path: Path) -> None:
    said = on_two(killed_of_four, tmp_path, world=4)
    assert all("RankFailed: rank 2 is gone in a step" in said[rank] for rank in (0, 1, 3)), said


def refused(rank: int) -> str:
    """One after the other what all ranks refuse, each in its own sentence; the group stays in step."""
    data, world = batches(rank, 1)[0], distributed.group.WORLD
    everything = init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "shards"))

    def said(model: nn.Module, optimizer: Optimizer, **options: Any) -> str:
        with pytest.raises(LowtideError) as caught:
            lowtide.train_step(model, optimizer, data, loss, **options)
        return str(caught.value)

    frozen, optimizer = model_of("plain")
    frozen.requires_grad_(rank == 0)
    spread, its_optimizer = model_of("fsdp")
    parts = parallelize_module(model_of("plain")[0], everything["copies"], {"4": ColwiseParallel()})

    def twice(model: nn.Module, batch: Any) -> Tensor:
        return loss(model, batch) + loss(model, batch)

    calls, its_other = model_of("ddp")
    with pytest.raises(LowtideError) as caught:
        lowtide.train_step(calls, its_other, data, twice)
    return "\n".join(
        (
            said(frozen, optimizer, process_group=world),
            said(*model_of("plain"), process_group=world, budget=None if rank else "75%"),
            said(spread, its_optimizer, mesh=everything["shards"]),
            said(*model_of("plain"), mesh=everything),
            said(parts, torch.optim.AdamW(parts.parameters()), process_group=world),
            str(caught.value),
        )
    )


@pytest.mark.slow
def test_all_ranks_refuse_in_a_sentence(tmp_path: Path) -> None:
    first, second = (said.splitlines() for said in on_two(refused, tmp_path))
    assert first[0].startswith("rank 1 failed in capture: ")
    assert "the optimizer holds no trainable parameter" in first[0]
    assert second[0] in first[0]
    assert first[1] == second[1]
    assert "rank 1 has another setting of train_step than rank 0: budget=None instead of budget='75%'" in first[1]
    assert "mesh has the ranks [0], but the model is spread over [0, 1]" in first[2]
    assert "mesh has the ranks [1], but the model is spread over [0, 1]" in second[2]
    assert "mesh must have one dimension for a plain model, not 2" in first[3]
    assert "4.weight is a DTensor that fully_shard alone did not make" in first[4]
    assert "the loss calls the model 2 times, and each changes '0.2.num_batches_tracked'" in first[5]
    assert second[3:] == first[3:]


def test_bad_input() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(InputError, match=r"call torch\.distributed\.init_process_group first"):
        spread_of(model, object(), None, "here")
    with pytest.raises(InputError, match="bucket_cap_mb is for a plain model with process_group"):
        spread_of(model, None, 25, "here")
    with pytest.raises(InputError, match="process_group and mesh both say which ranks train"):
        spread_of(model, object(), None, "here", mesh=object())
    with pytest.raises(InputError, match="must be a number of MiB above 0, not 0"):
        spread_of(model, object(), 0, "here")
