"""What torch.compile fuses, by hand: one kernel that reads and writes what is wanted outside of it."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.fitting.fusing import fuse
from lowtide.fitting.sketch import Sketch, sketch
from lowtide.planning.simulate import simulate
from lowtide.profiling.estimate import A_CPU

WIDTH, BATCH, BLOCKS = 16, 8, 3
SIZE = 4 * BATCH * WIDTH


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return (x * 2).tanh().mean()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Any:
        return ((self.linear(x) + 1.0) * 3.0).abs().sqrt()


@cache
def drawn() -> Sketch:
    with torch.device("meta"):
        model, x = Net(), torch.ones(BATCH, WIDTH)
    return sketch(model, lambda m: torch.optim.AdamW(m.parameters(), fused=True), x, None, A_CPU)


def test_a_block_is_a_product_and_a_kernel() -> None:
    step = drawn()
    fused = fuse(step.late, step.plain.graph, "blocks", A_CPU)
    graph = step.plain.graph
    of_block = [
        op for op, action in zip(fused.problem.ops, fused.actions, strict=True)
        if graph.ops[action.ranks[0]].module.startswith("blocks.1") and graph.ops[action.ranks[0]].phase == "forward"
    ]  # fmt: skip
    assert len(of_block) == 2
    product, kernel = of_block
    assert set(product.writes) <= set(kernel.reads)
    # backward wants what abs was given and what sqrt gave
    assert [fused.problem.sizes[s] for s in kernel.writes] == [SIZE, SIZE]
    assert kernel.time == pytest.approx(A_CPU.ms(3 * SIZE, 0.0, ""))


def test_nothing_is_fused_outside_of_blocks_unless_the_model_is_compiled() -> None:
    step = drawn()
    graph = step.plain.graph
    ops = {how: len(fuse(step.late, graph, how, A_CPU).problem.ops) for how in ("none", "blocks", "model")}
    assert ops["none"] == len(step.late.problem.ops) > ops["blocks"] > ops["model"]


def test_fused_steps_take_no_more() -> None:
    step = drawn()
    plain, *others = (fuse(step.late, step.plain.graph, how, A_CPU).problem for how in ("none", "blocks", "model"))
    before = simulate(plain, plain.program)
    for problem in others:
        after = simulate(problem, problem.program)
        assert after.peak <= before.peak
        assert after.time < before.time


def test_bad_words_get_one_sentence() -> None:
    with pytest.raises(lowtide.InputError, match="unknown compilation 'all': write one of none, blocks, model"):
        fuse(drawn().late, drawn().plain.graph, "all", A_CPU)
