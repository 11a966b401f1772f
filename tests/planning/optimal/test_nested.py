"""Nested passes over narrow blocks."""

import math

from lowtide.planning.optimal.blocks import Blocks, find_narrow_blocks
from lowtide.planning.optimal.decision import build
from lowtide.planning.optimal.nested import Nested
from lowtide.planning.optimal.options import block_options
from lowtide.planning.optimal.passes import Passes
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.repeats import Intervals
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.schedule import Schedule, verify
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import repeated_blocks


def _passes(blocks: Blocks) -> Passes:
    prices = [1.0, 1e-3, 0.0]
    return Passes(blocks, [block_options(blocks, b, prices) for b in range(blocks.count)], range(blocks.count))


def _distinct(blocks: Blocks) -> Intervals:
    """No two blocks taken as alike."""
    return Intervals(range(blocks.count))


def _line(links: int) -> Problem:
    """A line of ops of time 1 and values of 10 bytes, each read again on the way back."""
    storages = [Storage(0, resident=True), *(Storage(10) for _ in range(links)), *(Storage(1) for _ in range(links))]
    ops = [Op(f"f{i}", 1, (i,), (i + 1,)) for i in range(links)]
    for i in range(links):
        reads = (links - i, *((links + i,) if i else ()))
        ops.append(Op(f"b{i}", 1, reads, (links + i + 1,)))
    return Problem("line", tuple(storages), tuple(ops))


def test_blocks_are_cut_where_the_program_is_narrow() -> None:
    problem = repeated_blocks(6)
    blocks = find_narrow_blocks(ProgramView(problem), 64)
    assert blocks is not None
    assert blocks.count == 6
    assert all(len(entry) == 1 for entry in blocks.entry[1:])


def test_less_room_takes_more_time_and_the_order_is_valid() -> None:
    problem = repeated_blocks(12)
    view = ProgramView(problem)
    blocks = find_narrow_blocks(view, 64)
    assert blocks is not None
    passes = _passes(blocks)
    peak = simulate(problem, problem.program).peak
    before = 0.0
    for share in (1.0, 0.5, 0.3):
        room = int(share * (peak - problem.resident_bytes))
        nested = Nested(blocks, passes, room, _distinct(blocks), 400)
        assert before <= nested.extra() < math.inf
        before = nested.extra()
        decision = nested.decision()
        assert decision is not None
        order = build(view, decision)
        assert order is not None
        verify(problem, Schedule(tuple(order)))
        timeline = simulate(problem, order)
        assert timeline.peak <= problem.resident_bytes + 1.2 * room
        assert timeline.time - problem.base_time <= nested.extra() + 1e-3 * problem.base_time
    assert before > 0


def test_early_blocks_run_more_than_twice_where_little_fits() -> None:
    problem = _line(24)
    view = ProgramView(problem)
    blocks = Blocks(view, tuple(range(25)))
    nested = Nested(blocks, _passes(blocks), 60, _distinct(blocks), 400)
    decision = nested.decision()
    assert decision is not None
    order = build(view, decision)
    assert order is not None
    verify(problem, Schedule(tuple(order)))
    assert simulate(problem, order).peak <= 75
    assert max(order.count(o) for o in range(24)) > 2


def test_no_decision_where_nothing_fits() -> None:
    problem = repeated_blocks(4)
    blocks = find_narrow_blocks(ProgramView(problem), 64)
    assert blocks is not None
    assert Nested(blocks, _passes(blocks), 1000, _distinct(blocks), 400).decision() is None
