"""What is let go and made again without a plan."""

import pytest
import torch
from torch import nn

import lowtide
from lowtide.fitting.caching import reserved
from lowtide.fitting.checkpointing import usual
from lowtide.fitting.rank import Rank, alone
from lowtide.fitting.sketch import Sketch, sketch
from lowtide.planning.simulate import simulate
from lowtide.profiling.estimate import A_CPU
from tests.fitting.test_sharding import BLOCKS, WIDTH, drawn, ran


def forms(step: Sketch, checkpoint: str) -> tuple[Rank, tuple[int, ...]]:
    return usual(alone(step.late, step.plain.graph), step.plain.graph, checkpoint)


@pytest.mark.parametrize("world", [1, 4])
def test_the_more_is_let_go_the_less_it_takes(world: int) -> None:
    step = drawn(batch=512)
    plain, full = (ran(step, world, checkpoint) for checkpoint in ("none", "full"))
    assert full.peak < plain.peak
    assert full.time > plain.time


def test_full_keeps_what_goes_into_a_block_and_one_block_is_made_again_at_once() -> None:
    step = drawn(batch=512)
    rank, order = forms(step, "full")
    twice = [o for o in set(order) if order.count(o) > 1]
    again = [rank.step.actions[o].module for o in order[len([o for o in order if o not in rank.backward]) :]]
    assert twice
    assert len(again) > 0
    first = next(k for k, o in enumerate(order) if o in rank.backward)
    remade = [
        step.plain.graph.ops[rank.step.actions[o].ranks[0]].module.split(".")[1] for o in order[first:] if o in twice
    ]
    assert remade == sorted(remade, reverse=True), "from the last block to the first, each in one go"
    assert set(remade) == {str(k) for k in range(BLOCKS)}


class NoBias(nn.Module):
    """Its products are aten.mm, two in a block, and backward does not read the second's result."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh(), nn.Linear(WIDTH, WIDTH, bias=False))
            for _ in range(BLOCKS)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.mean()


def test_selective_holds_every_second_product_also_where_nobody_reads_it() -> None:
    with torch.device("meta"):
        model, x = NoBias(), torch.ones(512, WIDTH)
    step = sketch(model, lambda m: torch.optim.SGD(m.parameters(), 0.1, fused=True), x, None, A_CPU)
    rank, order = forms(step, "selective")
    full, full_order = forms(step, "full")
    more = simulate(rank.problem, order).peak - simulate(full.problem, full_order).peak
    product = 512 * WIDTH * 4
    assert more >= (BLOCKS - 1) * product


def test_the_allocator_reserves_at_least_what_lives() -> None:
    step = drawn(batch=512)
    for checkpoint in ("none", "full"):
        rank, order = forms(step, checkpoint)
        assert reserved(rank, order) >= simulate(rank.problem, order).peak


def test_bad_ways_get_one_sentence() -> None:
    step = drawn()
    with pytest.raises(lowtide.InputError, match="unknown checkpointing 'some'"):
        forms(step, "some")
    with torch.device("meta"):
        model, x = nn.Linear(3, 1), torch.ones(2, 3)
    flat = sketch(model, lambda m: torch.optim.SGD(m.parameters(), 0.1), x, lambda m, b: m(b).mean(), A_CPU)
    with pytest.raises(lowtide.InputError, match="needs blocks"):
        forms(flat, "full")
