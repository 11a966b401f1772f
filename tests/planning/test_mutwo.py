"""The paper's update rules, worked through by hand on graphs small enough to follow."""

import pytest

from lowtide.errors import InputError
from lowtide.planning.policies import BudgetInfeasible, mutwo
from lowtide.planning.policies.activations import phases
from lowtide.planning.policies.mutwo_greedy import candidates, program_live, start
from lowtide.planning.policies.prompt import prompt
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.simulate import simulate
from lowtide.planning.swaps import Swap, swaps_of

# forward a -> b -> c -> d, all of them read again by backward in reverse; e hides between b and c.
CHAIN = Problem(
    "chain",
    (
        Storage(50, resident=True),
        Storage(8, name="a"),
        Storage(6, name="b"),
        Storage(9, name="e"),
        Storage(4, name="c"),
        Storage(2, name="d"),
        Storage(1, name="gd"),
        Storage(1, name="gc"),
        Storage(1, name="gb"),
        Storage(1, name="ga"),
    ),
    (
        Op("a", 2, (0,), (1,)),
        Op("b", 3, (1,), (2,)),
        Op("e", 1, (2,), (3,)),
        Op("c", 4, (3,), (4,)),
        Op("d", 5, (4,), (5,)),
        Op("gd", 1, (5,), (6,)),
        Op("gc", 1, (6, 4), (7,)),
        Op("gb", 1, (7, 2), (8,)),
        Op("ga", 1, (8, 1), (9,)),
    ),
)
A, B, E, C, D = 1, 2, 3, 4, 5


def test_the_split_is_where_most_bytes_wait() -> None:
    found = phases(CHAIN)
    assert found.split == 4
    assert found.activations == (A, B, C, D)
    assert phases(CHAIN, 3).split == 3
    with pytest.raises(InputError, match="step of the program"):
        phases(CHAIN, 9)


def test_the_profile_of_each_activation() -> None:
    found = candidates(phases(CHAIN))
    a, b, c = found[A], found[B], found[C]
    assert (a.last_forward, a.first_backward, a.last_backward) == (1, 8, 8)
    assert (b.last_forward, b.first_backward, c.last_forward, c.first_backward) == (2, 7, 4, 6)
    assert a.inactive_time == 1 + 4 + 5 + 1 + 1 + 1  # e, c, d, gd, gc, gb
    assert b.inactive_time == 4 + 5 + 1 + 1
    assert (a.sources, b.sources, c.sources) == (set(), {A}, {B})
    assert c.graph == {2, 3}  # e is no activation: it is run again on the way
    assert (a.recompute_time, b.recompute_time, c.recompute_time) == (2, 3, 5)
    assert (a.ratio, b.ratio, c.ratio) == (8 / 2, 6 / 3, 4 / 5)


def test_choosing_a_source_makes_the_remaining_dearer() -> None:
    """F: b is recomputed from a; once a is, b costs both."""
    greedy = start(phases(CHAIN))
    greedy.choose_recompute(greedy.left[A], 0)
    b, c = greedy.left[B], greedy.left[C]
    assert (b.sources, b.recompute_time, b.total_time, b.graph) == (set(), 5, 5, {0, 1})
    assert (c.sources, c.recompute_time, c.total_time) == ({B}, 5, 5)


def test_choosing_a_value_first_makes_its_source_count_twice() -> None:
    """F then E: a would be run for itself and for b; choosing it puts its time on b and counts two runs."""
    greedy = start(phases(CHAIN))
    greedy.choose_recompute(greedy.left[B], 0)
    a, c = greedy.left[A], greedy.left[C]
    assert a.total_time == 1 * 2  # recomp_cnt of b is 1
    assert (c.sources, c.recompute_time) == ({A}, 8)  # b's sources and time
    greedy.choose_recompute(a, 0)
    b = greedy.recomputed[B]
    assert (b.sources, b.recompute_time, b.total_time) == (set(), 5, 3)  # E never refreshes the total
    assert a.count == 2
    assert (greedy.left[C].sources, greedy.left[C].recompute_time) == (set(), 10)


def test_the_count_of_a_twice_used_value_weighs_on_its_source() -> None:
    """E, F: c then b chosen, so b runs twice; its source a then costs twice its time."""
    greedy = start(phases(CHAIN))
    greedy.choose_recompute(greedy.left[C], 0)
    assert greedy.left[B].total_time == 1 * 3
    greedy.choose_recompute(greedy.left[B], 0)
    assert greedy.recomputed[B].count == 2
    assert greedy.left[A].total_time == 2 * 2
    assert greedy.recomputed[C].recompute_time == 5 + 3


def test_a_candidate_whose_users_are_chosen_counts_them_when_its_source_goes() -> None:
    """F: total = recomp_time x (1 + number of rp that use cand)."""
    greedy = start(phases(CHAIN))
    greedy.choose_recompute(greedy.left[C], 0)
    greedy.choose_recompute(greedy.left[A], 0)
    b = greedy.left[B]
    assert (b.recompute_time, b.total_time) == (5, 5 * 2)


def test_no_time_is_added_where_the_chosen_value_is_there_anyway() -> None:
    """F: x is read in backward from step 3 to 5, y first at 4: y is recomputed from x as it stands."""
    problem = Problem(
        "interval",
        (Storage(5), Storage(5), *(Storage(1) for _ in range(4))),
        (
            Op("x", 2, (), (0,)),
            Op("y", 3, (0,), (1,)),
            Op("loss", 1, (), (2,)),
            Op("g1", 1, (2, 0), (3,)),
            Op("g2", 1, (3, 1), (4,)),
            Op("g3", 1, (4, 0), (5,)),
        ),
    )
    greedy = start(phases(problem, 2))
    greedy.choose_recompute(greedy.left[0], 0)
    y = greedy.left[1]
    assert (y.sources, y.recompute_time, y.total_time) == ({0}, 3, 3)


def test_the_papers_simulator() -> None:
    """G: dropped after the last forward use, back before the first backward one; recomputation itself is free."""
    greedy = start(phases(CHAIN))
    assert program_live(greedy.phases).tolist() == list(simulate(CHAIN, CHAIN.program).live)
    assert greedy.live.tolist() == [58, 64, 73, 77, 70, 71, 70, 66, 60]
    greedy.choose_recompute(greedy.left[A], 0)
    assert greedy.live.tolist() == [58, 64, 65, 69, 62, 63, 62, 58, 60]


def test_the_greedy_takes_the_best_ratio_and_is_judged_exactly() -> None:
    plan = mutwo.plan(CHAIN, 70)
    assert plan.schedule.ops == (0, 1, 2, 3, 4, 5, 6, 7, 0, 8)
    assert (plan.peak, plan.time - CHAIN.base_time) == (69, 2)
    assert "the paper's own simulator says 69 bytes" in plan.note


def test_the_greedy_goes_on_where_the_exact_peak_is_over() -> None:
    with pytest.raises(BudgetInfeasible) as raised:
        mutwo.plan(CHAIN, 64)
    assert not raised.value.proven
    assert raised.value.floor == 66
    assert raised.value.blockers[0] == (E, 9)


def test_recomputation_stops_at_an_op_with_an_effect() -> None:
    ops = list(CHAIN.ops)
    ops[1] = Op("b", 3, (1,), (2,), once=True)
    found = candidates(phases(Problem("effect", CHAIN.storages, tuple(ops))))
    assert not found[B].recomputable
    assert found[C].sources == {B}


@pytest.mark.parametrize(
    ("time", "over", "step", "stall"),
    [
        (0, (), 8, 0),
        (1, (), 7, 0),
        (2.5, (), 5, 0),
        (3, (), 5, 0),
        (4, (), 5, 1),  # backward begins at step 5
        (3, (6,), 7, 2),  # nothing can come in at the peak
    ],
)
def test_prompts_and_stall(time: float, over: tuple[int, ...], step: int, stall: float) -> None:
    """C: a is read at step 8; gb, gc and gd before it take one each."""
    blocked = [k in over for k in range(9)]
    found = prompt(time, 8, 4, [op.time for op in CHAIN.ops], [0.0] * 9, blocked)
    assert (found.step, found.stall) == (step, stall)


def test_recomputation_in_backward_covers_a_prefetch() -> None:
    extra = [0.0] * 9
    extra[7] = 5.0
    assert prompt(4, 8, 4, [op.time for op in CHAIN.ops], extra, [False] * 9).step == 7


def with_swap(time: float, other: float | None = None) -> Problem:
    """CHAIN with a copy lane for a, and for b with another time."""
    storages, ops = list(CHAIN.storages), list(CHAIN.ops)
    for s, took in ((A, time), (B, other)):
        if took is not None:
            away = len(storages)
            storages.append(Storage(storages[s].bytes, off_device=True))
            ops += [
                Op("offload", took, (s,), (away,), optional=True, lane="copy"),
                Op("release", 0, (s, away), (), optional=True),
                Op("prefetch", took, (away,), (s,), optional=True, lane="copy"),
            ]
    return Problem("swap", tuple(storages), tuple(ops))


def test_a_swap_that_hides_is_chosen_over_recomputation() -> None:
    problem = with_swap(2)
    problem.verify()
    assert swaps_of(problem) == {A: Swap(A, 9, 10, 11)}
    greedy = start(phases(problem))
    assert greedy.advance(70)
    assert list(greedy.swapped) == [A]
    assert not greedy.recomputed
    assert (greedy.prompts[A].step, greedy.prompts[A].stall) == (6, 0)
    assert greedy.live.tolist() == [58, 64, 65, 69, 62, 63, 70, 66, 60]
    order = mutwo.rewritten(greedy, 70)
    assert order == (0, 1, 9, 10, 2, 3, 4, 5, 11, 6, 7, 8)  # e takes nine bytes, so a must be gone by then
    assert mutwo.rewritten(greedy, 73) == (0, 1, 9, 2, 10, 3, 4, 5, 11, 6, 7, 8)
    timeline = simulate(problem, order)
    assert (timeline.peak, timeline.waited) == (70, 2)
    assert mutwo.plan(problem, 70).schedule.ops == order


def test_a_swap_that_stalls_for_longer_is_not() -> None:
    greedy = start(phases(with_swap(9)))
    assert greedy.advance(70)
    assert not greedy.swapped
    assert list(greedy.recomputed) == [A]


def test_the_next_swap_starts_from_the_last_prompt() -> None:
    greedy = start(phases(with_swap(2, 1.5)))
    greedy.choose_swap(greedy.left[A], 100)
    assert greedy.prompts[A].step == 6
    b = greedy.left[B]
    assert greedy.swap_overhead(b, 100) == prompt(1.5, 6, 4, [op.time for op in CHAIN.ops], [0.0] * 9, [False] * 9)
    assert greedy.swap_overhead(b, 100).stall == 0.5


def test_prompts_are_renewed_when_recomputation_covers_more() -> None:
    greedy = start(phases(with_swap(3)))
    greedy.choose_swap(greedy.left[A], 100)
    assert greedy.prompts[A].step == 5
    greedy.choose_recompute(greedy.left[B], 100)  # three more before step 7
    assert greedy.prompts[A].step == 7
    assert greedy.live[6] == 70 - 8 - 6
