"""The bound along a spine: never above the optimum, equal to it by hand, and silent where there is no spine."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from lowtide.planning.optimal.cutting import price_bound
from lowtide.planning.optimal.decision import build
from lowtide.planning.optimal.instants import Model
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.regrow.regrowth import walk
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.spine.bound import SpineBound
from lowtide.planning.optimal.spine.cells import combine, sift
from lowtide.planning.optimal.spine.choices import AFTER, BEFORE, NEVER, Choices, backward_bytes
from lowtide.planning.optimal.spine.links import Spine
from lowtide.planning.optimal.warm import warm
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import random_layers, repeated_blocks
from tests.planning.exhaustive import least_time
from tests.planning.strategies import training_problems


def _bound(problem: Problem, budget: int, top: int) -> float:
    spine = SpineBound(ProgramView(problem), budget, top, left=lambda: math.inf)
    found = [chain.least for cells in SETTINGS.cells if (chain := spine.at(cells))]
    return max(found, default=0.0)


@st.composite
def chains(draw: st.DrawFn) -> Problem:
    """Forward with skips over one op, ops of two outputs and of one run only; backward reads some of it anywhere."""
    storages: list[Storage] = []
    ops: list[Op] = []
    outputs: list[list[int]] = []
    sizes, often = st.sampled_from([1, 1, 2, 3, 4]), st.integers(0, 9)
    for layer in range(draw(st.integers(3, 5))):
        reads = {draw(st.sampled_from(outputs[-1]))} if outputs else set()
        if layer > 1 and draw(often) < 4:
            reads.add(draw(st.sampled_from(outputs[-2])))
        outputs.append([len(storages) + i for i in range(1 + (draw(often) < 2))])
        storages.extend(Storage(draw(sizes)) for _ in outputs[-1])
        work = draw(st.sampled_from([0, 0, 0, 1]))
        time = draw(st.sampled_from([1, 2, 3, 5]))
        once = draw(st.integers(0, 24)) == 0
        ops.append(Op(f"f{layer}", time, tuple(sorted(reads)), tuple(outputs[-1]), work, once))
    gradient: int | None = None
    for layer in reversed(range(draw(st.integers(0, 1)), len(outputs))):
        reads = {s for s in outputs[layer] if draw(often) < 7} | ({gradient} if gradient is not None else set())
        if layer and draw(often) < 7:
            reads.add(draw(st.sampled_from(outputs[layer - 1])))
        if draw(often) == 0:
            reads.add(draw(st.sampled_from(draw(st.sampled_from(outputs)))))
        gradient = len(storages)
        storages.append(Storage(draw(st.integers(1, 2)), keep=draw(st.integers(0, 19)) == 0))
        once = draw(often) == 0
        time = draw(st.integers(1, 3))
        ops.append(Op(f"b{layer}", time, tuple(sorted(reads)), (gradient,), draw(st.integers(0, 1)), once))
    return Problem("chain", tuple(storages), tuple(ops))


@settings(max_examples=80, deadline=None)
@given(problem=st.one_of(chains(), training_problems(max_layers=4)), data=st.data())
def test_never_above_the_optimum(problem: Problem, data: st.DataObject) -> None:
    peak = simulate(problem, problem.program).peak
    budget = data.draw(st.integers(max(problem.resident_bytes + 1, peak - 8), peak))
    best = least_time(problem, budget)
    if best is None:
        return
    for top in range(1, len(problem.program)):
        assert _bound(problem, budget, top) <= best.value - problem.base_time + 1e-9


def test_a_chain_by_hand() -> None:
    """Four values of one byte, each read by its own backward op, which also takes two bytes of gradients.

    Within four bytes two values must be gone at the first backward op. One of them can wait for its own turn, but then
    runs again; the values below it have to be there for that.
    """
    storages = [Storage(1) for _ in range(8)]
    forward = [Op(f"f{i}", 1, (i - 1,) if i else (), (i,)) for i in range(4)]
    backward = [Op(f"b{i}", 1, (i, *((8 - i - 2,) if i < 3 else ())), (7 - i,)) for i in reversed(range(4))]
    problem = Problem("four", tuple(storages), (*forward, *backward))
    for budget in (3, 4):
        best = least_time(problem, budget)
        assert best is not None
        assert _bound(problem, budget, 4) == best.value - problem.base_time


def test_links_end_where_one_value_passes_that_backward_reads() -> None:
    problem = repeated_blocks(4)
    view = ProgramView(problem)
    top = int(view.live.argmax())
    links = Spine(view, top, 8 << 20).links
    assert [link.above for link in links[:-1]] == [link.below for link in links[1:]]
    assert [k for link in links for k in link.ops] == list(range(top))
    starts = [link.start for link in links]
    assert starts == sorted(starts, reverse=True)
    names = {problem.storages[link.above].name for link in links if link.above is not None}
    assert {"block0.relu2", "block1.relu2", "block2.relu2"} <= names
    assert not any("norm" in name for name in names), "what a block's addition reads passes beside it"


def test_choices_of_a_link() -> None:
    """Kept from forward it lies at every start, run again before the group's start only there, after it nowhere."""
    problem = repeated_blocks(3)
    view = ProgramView(problem)
    spine = Spine(view, int(view.live.argmax()), 8 << 20)
    link = spine.links[2]
    found = Choices(spine, link, topmost=True, late_below=False).find()
    stays, before, after = found[NEVER], found[BEFORE], found[AFTER]
    assert link.above is not None
    size = problem.sizes[link.above]
    assert min(cost.above for cost in stays) >= size
    assert min(cost.above for cost in before) == 0 < min(cost.at_start for cost in before)
    assert min(cost.time for cost in after) > min(cost.time for cost in stays) == 0


def test_what_else_lies_at_a_start_can_go_only_for_time() -> None:
    problem = repeated_blocks(3)
    view = ProgramView(problem)
    spine = Spine(view, int(view.live.argmax()), 8 << 20)
    for link in spine.links:
        rests = sorted(backward_bytes(spine, link, [other.start for other in spine.links]))
        assert [time for _, time in rests] == sorted((time for _, time in rests), reverse=True)
        assert rests[-1][1] == 0


def test_groups_bound_more_than_prices() -> None:
    """Prices see bytes on average over where groups begin; at their starts the room is full."""
    problem = repeated_blocks(8)
    view = ProgramView(problem)
    peak = simulate(problem, problem.program).peak
    budget = (problem.resident_bytes + peak) // 2
    top = int(view.live.argmax())
    seen: list[float] = []
    price = problem.base_time / budget
    prices = price_bound(view, budget, top, price=price, left=lambda: 3.0 - len(seen), found=seen.append)
    grouped = _bound(problem, budget, top)
    assert grouped > 1.02 * prices
    assert grouped > 1.02 * Model(view, budget, [top], certify=True).solve(seconds=5, tolerance=SETTINGS.gap_one).bound


@pytest.mark.slow
def test_without_a_spine_nothing_is_claimed() -> None:
    problem = random_layers(60, seed=1)
    view = ProgramView(problem)
    top = int(view.live.argmax())
    assert SpineBound(view, int(0.8 * view.live.max()), top, left=lambda: math.inf).at(120) is None


def test_a_value_of_backward_that_lies_at_several_starts_is_left_out() -> None:
    """Made again once, after the last of them, it is gone from all: counted at each it could be paid for twice."""
    storages = [Storage(4) for _ in range(4)] + [Storage(3), Storage(1), Storage(1), Storage(1), Storage(1)]
    forward = [Op(f"f{i}", 1, (i - 1,) if i else (), (i,)) for i in range(4)]
    long = Op("long", 1, (3,), (4,))
    backward = [
        Op("b3", 1, (3, 2), (5,)),
        Op("b2", 1, (2, 1, 5), (6,)),
        Op("b1", 1, (1, 0, 6), (7,)),
        Op("b0", 1, (0, 7, 4), (8,)),
    ]
    problem = Problem("long", tuple(storages), (*forward, long, *backward))
    spine = Spine(ProgramView(problem), 4, 12)
    starts = [link.start for link in spine.links]
    assert len(starts) == 4
    counted = {link.start: backward_bytes(spine, link, starts) for link in spine.links}
    b2 = 6
    assert counted[b2] == [(1 + 1, 0.0)], "its output and b3's, which it reads, but not long's"


def test_the_decision_of_the_bound_can_be_built_and_takes_about_its_time() -> None:
    problem = repeated_blocks(8)
    view = ProgramView(problem)
    peak = simulate(problem, problem.program).peak
    budget = (problem.resident_bytes + peak) // 2
    top = int(view.live.argmax())
    spine = SpineBound(view, budget, top, left=lambda: math.inf)
    chains = [spine.at(240, percent) for percent in (90, 100)]
    decisions = [spine.decision(chain) for chain in chains if chain is not None]
    orders = [build(view, decision) for decision in decisions if decision is not None]
    times = [sum(problem.times[o] for o in order or ()) - problem.base_time for order in orders]
    assert times[0] > times[1] > 0.9 * _bound(problem, budget, top)
    assert orders[1] is not None
    assert simulate(problem, tuple(orders[1])).peak < 0.75 * peak


def test_nothing_lies_above_the_last_link() -> None:
    """Values that only ops before the last link's start read lie at no start: within eight bytes one run is enough."""
    forward = [((), (0,), 2), ((0,), (1, 2), 1), ((0, 2), (3,), 1), ((3,), (4,), 5), ((4,), (5,), 1)]
    backward = [((4, 5), (6,), 2), ((3, 4, 6), (7,), 2), ((2, 7), (8,), 2), ((0, 1, 8), (9,), 1), ((0, 9), (10,), 2)]
    ops = [Op(f"op{k}", time, reads, writes) for k, (reads, writes, time) in enumerate([*forward, *backward])]
    problem = Problem("above", tuple(Storage(size) for size in (1, 1, 4, 1, 1, 1, 2, 1, 1, 1, 1)), tuple(ops))
    best = least_time(problem, 8)
    assert best is not None
    assert best.value - problem.base_time == 1
    assert _bound(problem, 8, 6) <= 1


def test_what_is_compiled_can_be_compiled_beforehand() -> None:
    warm()
    for entry in (combine, sift, walk):
        assert isinstance(entry, Dispatcher)
        assert entry.signatures, "numba lists what it compiled"
