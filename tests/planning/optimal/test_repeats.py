"""Blocks that repeat are recognised, and sharing their tables changes nothing."""

from dataclasses import replace

import numpy as np
import pytest

from lowtide.planning.optimal.blocks import Blocks, find_narrow_blocks
from lowtide.planning.optimal.nested import Nested
from lowtide.planning.optimal.options import block_options
from lowtide.planning.optimal.passes import Passes
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.repeats import Intervals, own_storages, repeats
from lowtide.planning.problem import Problem
from lowtide.planning.synthetic import repeated_blocks


def _blocks(problem: Problem) -> Blocks:
    found = find_narrow_blocks(ProgramView(problem), 64)
    assert found is not None
    return found


def _changed(problem: Problem, prefix: str, *, times: float = 1.0, workspace: int | None = None) -> Problem:
    """The problem with another time or workspace of the ops whose names begin so."""
    ops = [
        replace(op, time=op.time * times, workspace=op.workspace if workspace is None else workspace)
        if op.name.startswith(prefix)
        else op
        for op in problem.ops
    ]
    return Problem(problem.name, problem.storages, tuple(ops))


def test_all_but_the_ends_of_a_chain_are_alike() -> None:
    like = repeats(_blocks(repeated_blocks(8)))
    assert like[:6] == (0, 1, 1, 1, 1, 1)
    assert like[7] == 7


def test_blocks_stand_for_themselves_where_few_repeat() -> None:
    problem = repeated_blocks(8)
    for block in range(2, 6):
        problem = _changed(problem, f"block{block}.conv1", workspace=block)
    assert repeats(_blocks(problem)) == tuple(range(8))


@pytest.mark.parametrize(
    ("problem", "same"),
    [
        (_changed(repeated_blocks(12), "block4.conv2", times=1.05), True),
        (_changed(repeated_blocks(12), "block4.conv2", times=1.9), False),
        (_changed(repeated_blocks(12), "block4.norm1", times=0.1), False),
        (_changed(repeated_blocks(12), "block4.", times=1.2), False),
        (_changed(repeated_blocks(12), "block4.conv2", workspace=12345), False),
        (_changed(repeated_blocks(12), "block4.conv2.backward", workspace=12345), False),
    ],
)
def test_times_may_differ_a_little_and_bytes_not_at_all(problem: Problem, same: bool) -> None:
    like = repeats(_blocks(problem))
    assert (like[4] == like[3]) == same
    assert like[5] == like[3]


def test_own_storages_stand_in_the_same_order() -> None:
    problem = repeated_blocks(4)
    blocks = _blocks(problem)
    names = [[str(problem.storages[s].name).split(".")[1] for s in own_storages(blocks, b)] for b in (1, 2)]
    assert names[0] == names[1]


def test_intervals_of_the_same_blocks_are_one() -> None:
    intervals = Intervals((0, 1, 1, 1, 4))
    assert intervals.place[1, 2] == intervals.place[2, 3]
    assert intervals.place[0, 1] != intervals.place[1, 2]
    assert len(intervals.first) == 3 + 3 + 3 + 2 + 1
    assert intervals.first == sorted(intervals.first, key=lambda interval: interval[1] - interval[0])
    assert intervals.splits == sum(j - i for i, j in intervals.first)


def test_sharing_tables_changes_nothing_where_blocks_are_equal() -> None:
    problem = repeated_blocks(9)
    blocks = _blocks(problem)
    like = repeats(blocks)
    options = [block_options(blocks, b, [1.0, 1e-3, 0.0]) for b in range(blocks.count)]
    room = int(0.4 * (int(blocks.view.live.max()) - problem.resident_bytes))
    alone = Nested(blocks, Passes(blocks, options, range(blocks.count)), room, Intervals(range(blocks.count)), 400)
    shared = Nested(blocks, Passes(blocks, options, like), room, Intervals(like), 400)
    assert np.array_equal(alone.first, shared.first)
    assert len(shared.intervals.first) < len(alone.intervals.first)
    assert alone.decision() == shared.decision()
