"""Ranks agree on one graph and one plan; who differs, fails or dies is named by the others."""

import os
import signal
from pathlib import Path

import pytest
import torch
from torch import distributed, nn

import lowtide
from lowtide.errors import InputError
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


def mixed(rank: int) -> str:
    """A policy that FSDP2 takes and lowtide does not."""
    model, optimizer = model_of("mixed")
    return str(lowtide.train_step(model, optimizer, batches(rank, 1)[0], loss))


@pytest.mark.slow
def test_a_mixed_precision_policy_is_refused(tmp_path: Path) -> None:
    assert all("has a MixedPrecisionPolicy, which is not supported yet" in text for text in on_two(mixed, tmp_path))


def test_bad_input() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(InputError, match=r"call torch\.distributed\.init_process_group first"):
        spread_of(model, object(), None, "here")
    with pytest.raises(InputError, match="bucket_cap_mb is for a plain model with process_group"):
        spread_of(model, None, 25, "here")
    with pytest.raises(InputError, match="must be a number of MiB above 0, not 0"):
        spread_of(model, object(), 0, "here")
