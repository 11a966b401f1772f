"""One rank of FSDP2 as a problem: bytes by hand, and orders that can run."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.fitting.fit import Sketch, sketch
from lowtide.fitting.sharding import Sharded, recomputing, selective, shard
from lowtide.planning.policies import policy
from lowtide.planning.simulate import simulate
from lowtide.profiling.estimate import A_CPU
from lowtide.records.vocabulary import Role

WIDTH, BLOCKS = 32, 5


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x).mean()


def drawn(dtype: torch.dtype = torch.float32, batch: int = 4) -> Sketch:
    with torch.device("meta"):
        model, x = Deep().to(dtype), torch.ones(batch, WIDTH, dtype=dtype)
    return sketch(model, lambda m: torch.optim.AdamW(m.parameters(), fused=True), x, None, A_CPU)


def sharded(step: Sketch, world: int = 4) -> Sharded:
    return shard(step.late, step.plain.graph, world, 1e6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shards_are_float32_and_whole_parameters_are_not(dtype: torch.dtype) -> None:
    step = drawn(dtype)
    one = sharded(step)
    graph = step.plain.graph
    held = {storage.name: one.problem.storages[storage.index].bytes for storage in graph.storages if storage.resident}
    assert held["blocks.1.0.weight"] == WIDTH * WIDTH * 4 // 4
    parameters = sum(s.role is Role.PARAMETER for s in graph.storages)
    assert parameters == 4 * BLOCKS + 2
    gathered = {one.problem.storages[s].name: one.problem.storages[s].bytes for s in one.gathered}
    assert gathered["blocks.2, gathered"] == 2 * (WIDTH * WIDTH + WIDTH) * dtype.itemsize
    assert set(gathered) == {*(f"blocks.{k}, gathered" for k in range(BLOCKS)), "all else, gathered"}


def test_every_group_is_reduced_once_and_the_update_reads_shards() -> None:
    one = sharded(drawn())
    names = [op.name for op in one.problem.ops]
    assert sum(name.startswith("reduce ") for name in names) == BLOCKS + 1
    assert sum(name.startswith("gather ") for name in names) == BLOCKS + 1
    (update,) = (op for op in one.problem.ops if op.name.startswith("update"))
    read = {one.problem.storages[s].name for s in update.reads if not one.problem.storages[s].resident}
    assert read == {*(f"blocks.{k}, gradient of the shard" for k in range(BLOCKS)), "all else, gradient of the shard"}


def test_gathering_again_takes_less_than_keeping() -> None:
    one = sharded(drawn())
    kept = simulate(one.problem, one.problem.program)
    again = simulate(one.problem, recomputing(one, one.gathered))
    assert again.peak < kept.peak
    assert again.time > kept.time


def test_more_devices_take_less_of_each() -> None:
    step = drawn()
    peaks = [simulate(x.problem, recomputing(x, x.gathered)).peak for x in (sharded(step, w) for w in (2, 4, 64))]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)


def test_selective_checkpointing_lets_activations_go() -> None:
    step = drawn(batch=512)
    one = sharded(step)
    plain = simulate(one.problem, recomputing(one, one.gathered))
    less = simulate(one.problem, recomputing(one, selective(one, step.plain.graph)))
    assert less.peak < plain.peak
    assert less.time > plain.time


def test_the_planner_decides_what_to_gather_again() -> None:
    one = sharded(drawn())
    usual = simulate(one.problem, recomputing(one, one.gathered))
    plan = policy("optimal").plan(one.problem, usual.peak, time_limit=2.0)
    assert plan.peak <= usual.peak
    assert plan.time <= usual.time


def test_bad_worlds_get_one_sentence() -> None:
    step = drawn()
    with pytest.raises(lowtide.InputError, match="at least 2 devices, not 0"):
        sharded(step, 0)
    with torch.device("meta"):
        model = Deep()
        model.head.to(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, WIDTH)
    with pytest.raises(lowtide.InputError, match="one dtype"):
        lowtide.fit(model, optimizer, x, lambda m, b: _mixed(m, b), device="l4", world=2)


def _mixed(model: Any, x: Tensor) -> Any:
    for block in model.blocks:
        x = block(x)
    return model.head(x.double()).mean()
